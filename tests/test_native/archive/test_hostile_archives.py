"""Hostile archives: each is refused by its rule, and nothing of it runs."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from interpool_testing import every_interpreter
from test_native.hostile.cases import MANIFEST, PICKLE, SOURCE, Case, Good, build_good
from test_native.hostile.every_case import CASES
from test_native.hostile.zips import Member, zip_of

from interpool.archiver_ext.commands.subcommands import commands
from interpool.native import InterpreterManager
from interpool.native.archive.reader import check_digests, read_manifest, read_records
from interpool.native.errors import ArchiveError, StructureError

(INSPECT,) = [command for command in commands if command.name == "inspect"]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    return build_good(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module", autouse=True)
def still_serves(
    manager: InterpreterManager, good: Good, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A model that was there before all of them answers in every interpreter after them."""
    path = tmp_path_factory.mktemp("served") / "good.ptpkg"
    path.write_bytes(good.bytes())
    model = manager.load_package(path).load_pickle("model", "model.pkl")
    (good.traces / "imported").unlink()
    yield
    with every_interpreter(manager) as sessions:
        load = "interpool.native.inside.packages", "load_object"
        models = [session.global_(*load)(str(path), "model", "model.pkl") for session in sessions]
        assert [each(torch.ones(4)).to_value().tolist() for each in models] == [[3.0] * 4] * len(sessions)
    assert model(torch.ones(4)).tolist() == [3.0] * 4


def admit(path: Path) -> None:
    """What is done before anything in an archive runs."""
    with path.open("rb") as file:
        records = read_records(str(path), file)
        manifest = read_manifest(str(path), file, records)
        assert manifest is not None
        check_digests(str(path), file, records, manifest)


def assert_refused(error: BaseException | None, case: Case, path: Path) -> None:
    assert isinstance(error, case.refused_by), error
    assert (type(error), error.rule) == (case.refused_by, case.rule), error
    assert str(path) in str(error)
    assert str(error).endswith(f"[{case.rule}]")
    assert len(str(error)) < 1000


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_hostile_archive_is_refused_by_its_rule(
    manager: InterpreterManager, tmp_path: Path, good: Good, case: Case
) -> None:
    path = tmp_path / "hostile.ptpkg"
    path.write_bytes(case.build(good))
    inspected = CliRunner().invoke(INSPECT, [str(path)])
    if case.stage == "unpickling":
        admit(path)
        assert inspected.exit_code == 0, inspected.output
        with pytest.raises(ArchiveError) as caught:
            manager.load_package(path).load_pickle("model", "model.pkl")
        assert_refused(caught.value, case, path)
    else:
        with pytest.raises(ArchiveError) as caught:
            admit(path)
        assert_refused(caught.value, case, path)
    if case.stage in ("structure", "manifest"):
        assert_refused(inspected.exception, case, path)
        with pytest.raises(ArchiveError) as caught:
            manager.load_package(path)
        assert_refused(caught.value, case, path)
    assert not (good.traces / "called").exists()
    if case.stage != "unpickling":
        assert not (good.traces / "imported").exists()
    (good.traces / "imported").unlink(missing_ok=True)
    with manager.acquire_session(timeout=60) as session:
        assert session.from_value(1).to_value() == 1


def test_the_good_archive_leaves_its_traces(manager: InterpreterManager, tmp_path: Path, good: Good) -> None:
    """So that no trace, above, says something."""
    path = tmp_path / "good.ptpkg"
    path.write_bytes(good.bytes())
    admit(path)
    assert manager.load_package(path).load_pickle("model", "model.pkl")(torch.ones(4)).tolist() == [3.0] * 4
    assert (good.traces / "imported").exists()
    (good.traces / "imported").unlink()


def test_readers_differ_about_what_the_structure_refuses(good: Good, tmp_path: Path) -> None:
    """Which is why it is refused: torch calls the member by one name, Python's zipfile finds another's."""
    (case,) = [case for case in CASES if case.name == "names that differ in case"]
    path = tmp_path / "hostile.ptpkg"
    path.write_bytes(case.build(good))
    names = torch._C.PyTorchFileReader(str(path))
    with zipfile.ZipFile(path) as archive:
        contents = {archive.read(f"archive/{name}") for name in (SOURCE, "Scale_Model.py")}
    assert len(contents) == 2
    assert names.get_record(SOURCE) == names.get_record("Scale_Model.py")


def test_an_archive_inside_an_archive_is_only_data(tmp_path: Path, good: Good) -> None:
    path = tmp_path / "outer.ptpkg"
    path.write_bytes(good.having({"model/inner.ptpkg": good.bytes()}).bytes())
    admit(path)


def test_an_index_of_the_memo_costs_no_memory(
    manager: InterpreterManager, tmp_path: Path, good: Good
) -> None:
    path = tmp_path / "memo.ptpkg"
    path.write_bytes(good.having({PICKLE: b"\x80\x04K\x07r\xff\xff\xff\x7f."}).bytes())
    with manager.load_package(path).acquire_session(timeout=60) as session:
        assert session.self.attr("load_pickle")("model", "model.pkl").to_value() == 7


class CountingFile(io.BytesIO):
    """Knows how much of it was read."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


def test_too_many_members_are_refused_by_the_end_alone(good: Good) -> None:
    (case,) = [case for case in CASES if case.rule == "too-many-members"]
    file = CountingFile(case.build(good))
    with pytest.raises(StructureError, match="holds 100,000 files; 65,536 are allowed"):
        read_records("many.ptpkg", file)
    assert file.count < 200


def test_content_is_not_read_to_know_the_structure(good: Good) -> None:
    file = CountingFile(good.having({"model/big.bin": bytes(1 << 20)}).bytes())
    read_records("big.ptpkg", file)
    assert file.count < 20_000


def test_the_time_to_read_members_grows_with_their_number_and_no_faster(good: Good) -> None:
    def seconds(count: int) -> float:
        """Of this thread's own, to read so many."""
        further = [Member(f"archive/notes/{number}.txt", b"x") for number in range(count)]
        file = io.BytesIO(zip_of([*good.sealed(), *further]))
        started = time.thread_time()
        assert len(read_records("many.ptpkg", file)) == count + len(good.sealed())
        return time.thread_time() - started

    few, many = (min(seconds(count) for _ in range(2)) for count in (500, 5_000))
    assert many < 30 * few


def test_a_manifest_that_was_compressed_is_read(good: Good) -> None:
    """By other packers; only weights must be stored."""
    members = [Member(m.name, m.data, deflated=m.name.endswith(MANIFEST)) for m in good.sealed()]
    file = io.BytesIO(zip_of(members))
    records = read_records("a.ptpkg", file)
    assert read_manifest("a.ptpkg", file, records) == good.manifest()
