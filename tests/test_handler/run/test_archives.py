"""Which archives are served without TorchServe, before anything of them runs."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from extracted import extracted
from proving import build_archive
from stock_archiver import wrap

from interpool.handler.errors import ServeError
from interpool.handler.host.kept_directory import KeptDirectory
from interpool.handler.run.archives import opened
from interpool.handler.run.options import Options

SERVES = """
import sys
from pathlib import Path
from interpool.handler.run.archives import opened
from interpool.handler.run.options import Options
with opened("ordinary", Path(sys.argv[1]), Options()) as archive:
    print(archive.files.model_dir, flush=True)
    input()
"""


@pytest.fixture
def ordinary(tmp_path: Path) -> Path:
    handler = tmp_path / "handler.py"
    handler.write_text("def handle(data, context):\n    return data\n")
    return tmp_path / wrap("ordinary", handler, tmp_path)


@pytest.mark.parametrize("asks", ["INTERPOOL_SIGNATURE_KEYS=/keys/a.pem", "INTERPOOL_STOCK_ARCHIVES=refuse"])
def test_an_ordinary_archive_is_refused_if_the_operator_asks_for_signatures_or_says_so(
    ordinary: Path, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    name, _, value = asks.partition("=")
    monkeypatch.setenv(name, value)
    said = rf"ordinary\.mar cannot be served: this model is refused: .*{name}.*\[stock-archive\]"
    with pytest.raises(ServeError, match=said), opened("ordinary", ordinary, Options()):
        pass


def test_an_ordinary_archive_is_served_beside_signed_ones_if_the_operator_allows_it(
    ordinary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_SIGNATURE_KEYS", "/keys/a.pem")
    monkeypatch.setenv("INTERPOOL_STOCK_ARCHIVES", "allow")
    with opened("ordinary", ordinary, Options()) as archive:
        assert archive.name == "ordinary"


def test_a_hermetic_archive_is_left_to_the_load_which_checks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_SIGNATURE_KEYS", "/keys/a.pem")
    package = build_archive(tmp_path / "unsigned.ptpkg", tmp_path / "canary")
    with opened("unsigned", package, Options()) as archive:
        assert archive.name == "unsigned"


def test_files_that_a_killed_server_had_extracted_go_at_the_next_start(
    ordinary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    command = [sys.executable, "-c", SERVES, ordinary]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        theirs = Path(server.stdout.readline().decode().strip())
        with opened("ordinary", ordinary, Options()) as archive:
            assert theirs.is_dir()  # while its server lives
            server.kill()
            server.wait()
            with opened("another", ordinary, Options()):
                assert not theirs.exists()
            assert Path(archive.files.model_dir).is_dir()
    assert list(place.iterdir()) == []


def test_a_trial_restores_nothing_in_a_folder_that_belongs_to_its_owner(tmp_path: Path) -> None:
    folder = extracted(tmp_path / "own")
    with opened("own", folder, Options()) as archive, KeptDirectory(archive.files.model_dir) as kept:
        (folder / "written").touch()
        kept.put_back()
    assert (folder / "written").exists()
    assert list(tmp_path.iterdir()) == [folder]


def test_what_a_trial_keeps_goes_with_the_extracted_archive(ordinary: Path) -> None:
    with opened("ordinary", ordinary, Options()) as archive:
        model_dir = Path(archive.files.model_dir)
        KeptDirectory(str(model_dir)).__enter__()  # its process ends in the trial
    assert not [path for path in model_dir.parent.parent.iterdir() if model_dir.parent.name in path.name]


@pytest.mark.parametrize("name", ["", "team/price", 7])
def test_a_name_that_no_client_can_ask_for_is_refused(ordinary: Path, name: Any) -> None:
    with (
        pytest.raises(ServeError, match=f"{name!r} cannot be a model's name"),
        opened(name, ordinary, Options()),
    ):
        pass


def test_no_delay_of_batches_is_a_delay_that_an_option_may_ask_for(ordinary: Path) -> None:
    for delay_ms, seconds in ((None, 0.1), (0, 0.0), (5, 0.005)):
        with opened("ordinary", ordinary, Options(batch_delay_ms=delay_ms)) as archive:
            assert archive.settings.batch_delay_s == seconds


def test_a_queue_is_set_up_by_options_or_else_by_the_models_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("clientTimeoutInMills: 500\njobQueueSize: 7\nresponseTimeout: 9\n")
    extracted(tmp_path, handler="handler.py", configFile="config.yaml")
    options = Options(client_timeout_s=2.0, queue_size=4, response_timeout_s=3)
    for given, expected in ((Options(), (0.5, 7, 9)), (options, (2.0, 4, 3))):
        with opened("model", tmp_path, given) as archive:
            found = archive.settings
            assert (found.client_timeout_s, found.queue_size, found.response_timeout_s) == expected


def test_a_size_of_batches_that_torchserve_cannot_have_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"batchSize: {1 << 31}")
    extracted(tmp_path, handler="handler.py", configFile="config.yaml")
    with opened("model", tmp_path, Options()) as archive:
        assert archive.settings.batch_size == 1


def _damaged(directory: Path, damage: str) -> Path:
    source = directory / "handler.py"
    source.write_text("# many words\n" * 1000)
    if damage == "cut":
        path = directory / "model.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(source, "handler.py")
        path.write_bytes(path.read_bytes()[:-30])
        return path
    path = directory / "model.mar"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(source, "handler.py")
    data = bytearray(path.read_bytes())
    entry, content = data.index(b"PK\1\2"), 30 + len("handler.py")
    if damage == "altered":
        data[content : content + 8] = b"\xff" * 8
    elif damage == "encrypted":
        data[6] |= 1
        data[entry + 8] |= 1
    elif damage == "of an unknown compression":
        data[8] = data[entry + 10] = 97
    path.write_bytes(data)
    return path


def _tgz(path: Path, member: tarfile.TarInfo, content: bytes = b"") -> Path:
    member.size = member.size or len(content)
    with gzip.open(path, "wb") as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512 + 1024))
    return path


def _special(directory: Path, kind: str) -> Path:
    """An archive that would take the machine's memory, disk or patience, or lead out of its directory."""
    path = directory / "model.tar.gz"
    member = tarfile.TarInfo("model/handler.py")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "long name":
        member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1 << 26
        _tgz(path, member, bytes(1 << 26))
    elif kind == "link":
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        _tgz(path, member)
    elif kind == "outside":
        member.name = "model/../../handler.py"
        _tgz(path, member, b"x")
    elif kind == "huge":
        path = directory / "model.mar"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("handler.py", "")
            archive.infolist()[0].file_size = 1 << 50
    return path


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("pipe", "it is neither a file nor a directory"),
        ("long name", "has longer headers than any .mar"),
        ("link", "handler.py is neither a file nor a directory"),
        ("outside", "leads out of the model's directory"),
        ("huge", "it would unpack to 1,125,899,906,842,624 bytes"),
    ],
)
def test_an_archive_that_would_take_the_machine_is_refused(tmp_path: Path, kind: str, words: str) -> None:
    path = _special(tmp_path, kind)
    with pytest.raises(ServeError, match=f"{path.name} .*{words}"), opened("model", path, Options()):
        pass


@pytest.mark.parametrize(("free", "fits"), [(1_000_000, True), (700_000, False)])
def test_an_archive_is_extracted_if_the_disk_has_room_for_all_of_it(
    ordinary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, fits: bool
) -> None:
    packed = tmp_path / "ordinary.tar.gz"
    with zipfile.ZipFile(ordinary) as archive, tarfile.open(packed, "w:gz") as tar:
        archive.extractall(tmp_path / "ordinary")
        for number in range(10):  # together three quarters of the larger disk
            (tmp_path / "ordinary" / f"weights{number}").write_bytes(os.urandom(75_000))
        tar.add(tmp_path / "ordinary", "ordinary")

    class Disk(NamedTuple):
        free: int

    def disk_usage(directory: Path) -> Disk:
        return Disk(free - sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()))

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    refused = contextlib.nullcontext() if fits else pytest.raises(ServeError, match="has room for 700,000")
    with refused, opened("ordinary", packed, Options()) as found:
        assert (Path(found.files.model_dir) / "weights9").stat().st_size == 75_000


@pytest.mark.parametrize("damage", ["cut", "altered", "encrypted", "of an unknown compression"])
def test_an_archive_that_cannot_be_read_is_refused(tmp_path: Path, damage: str) -> None:
    path = _damaged(tmp_path, damage)
    with (
        pytest.raises(ServeError, match=f"{path.name} is not an archive of TorchServe's: .+"),
        opened("model", path, Options()),
    ):
        pass
