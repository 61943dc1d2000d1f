"""Signing, and what a signature is worth."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from proving import build_archive, make_keys, replace_bytes

from interpool.archiver_ext.commands.subcommands import commands
from interpool.archiver_ext.verify.signature_check import verify_signature, verify_signature_apart
from interpool.archiver_ext.verify.signing import (
    sign_archive,
)
from interpool.archiver_ext.verify.signing_keys import fingerprint
from interpool.native.archive.reader import MANIFEST_MEMBER, SIGNATURE_MEMBER
from interpool.native.errors import ArchiveError, DigestError, SignatureError

Keys = tuple[Path, Path]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("packed")
    return build_archive(directory / "archive.ptpkg", directory / "canary").read_bytes()


@pytest.fixture
def archive(tmp_path: Path, packed: bytes) -> Path:
    path = tmp_path / "m.ptpkg"
    path.write_bytes(packed)
    return path


def members(archive: Path) -> tuple[bytes, bytes | None]:
    """The manifest and the signature."""
    with zipfile.ZipFile(archive) as file:
        root = file.namelist()[0].partition("/")[0]
        signed = f"{root}/{SIGNATURE_MEMBER}" in file.namelist()
        signature = file.read(f"{root}/{SIGNATURE_MEMBER}") if signed else None
        return file.read(f"{root}/{MANIFEST_MEMBER}"), signature


def check(archive: Path, *keys: Path) -> str:
    return verify_signature(*members(archive), keys, archive.name)


def refused(rule: str, work: Callable[[], object]) -> str:
    with pytest.raises(SignatureError) as caught:
        work()
    assert caught.value.rule == rule, str(caught.value)
    return str(caught.value)


# ---- signing ---------------------------------------------------------------------------------


def test_a_signature_is_the_last_member_and_changes_no_other_byte(archive: Path, keys: Keys) -> None:
    before = archive.read_bytes()
    with zipfile.ZipFile(archive) as file:
        directory, names = file.start_dir, file.namelist()
        offsets = {info.filename: info.header_offset for info in file.infolist()}
    done = sign_archive(archive, keys[0])
    with zipfile.ZipFile(archive) as file:
        assert file.namelist() == [*names, f"archive/{SIGNATURE_MEMBER}"]
        assert {name: file.getinfo(name).header_offset for name in names} == offsets
        assert file.testzip() is None
    assert archive.read_bytes()[:directory] == before[:directory]
    assert done.fingerprint == check(archive, keys[1])
    assert not done.replaced


def test_signing_again_replaces_the_signature(archive: Path, keys: Keys, tmp_path: Path) -> None:
    sign_archive(archive, keys[0])
    size = archive.stat().st_size
    other = make_keys(tmp_path, "other", "secp384r1")
    assert sign_archive(archive, other[0]).replaced
    with zipfile.ZipFile(archive) as file:
        assert file.namelist().count(f"archive/{SIGNATURE_MEMBER}") == 1
        assert file.testzip() is None
    assert abs(archive.stat().st_size - size) < 200
    assert check(archive, other[1]) == fingerprint(other[1])
    refused("wrong-key", lambda: check(archive, keys[1]))


def test_a_disk_without_room_leaves_the_archive_as_it_is(
    archive: Path, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = archive.read_bytes()
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(ArchiveError, match=r"m\.ptpkg cannot be written \(No space left") as caught:
        sign_archive(archive, keys[0])
    assert caught.value.rule == "unwritable"
    assert archive.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m.ptpkg"]


def test_a_pipe_is_not_replaced(archive: Path, keys: Keys, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArchiveError, match="pipe cannot be written: it exists, and is no file"):
        sign_archive(archive, keys[0], output=tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_an_archive_that_differs_from_its_manifest_is_not_signed(
    archive: Path, keys: Keys, tmp_path: Path
) -> None:
    replace_bytes(archive, "proving_model.py", b"* 1.0", b"* 2.0")
    before = archive.read_bytes()
    with pytest.raises(DigestError):
        sign_archive(archive, keys[0])
    assert archive.read_bytes() == before
    with pytest.raises(ArchiveError, match=r"none\.ptpkg cannot be read \(No such file"):
        sign_archive(tmp_path / "none.ptpkg", keys[0])


def test_a_protected_key_needs_its_password(archive: Path, keys: Keys, tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-aes128", "-passout", "pass:secret", "-in", keys[0], "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    said = refused("key-password", lambda: sign_archive(archive, locked))
    assert "--ask-password" in said
    refused("key-file", lambda: sign_archive(archive, locked, password="wrong"))
    (sign,) = [command for command in commands if command.name == "sign"]
    runner = CliRunner(env={"INTERPOOL_KEY_PASSWORD": "secret"})
    done = runner.invoke(sign, [str(archive), "--key", str(locked)], catch_exceptions=False)
    assert done.stdout == f"signed {archive} with key {fingerprint(keys[1])}\n"
    again = CliRunner().invoke(
        sign, [str(archive), "--key", str(locked), "--ask-password"], input="secret\n", catch_exceptions=False
    )
    assert "signed again" in again.output
    assert check(archive, keys[1])


# ---- keys ------------------------------------------------------------------------------------


def test_a_fingerprint_is_what_openssl_and_sha256sum_say(keys: Keys) -> None:
    command = f"openssl ec -pubin -in {keys[1]} 2>/dev/null | sha256sum"
    said = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    assert said.split()[0] == fingerprint(keys[1])


@pytest.mark.parametrize("what", ["missing", "text", "rsa", "curve", "private"])
def test_a_key_that_is_none_is_refused_by_name(archive: Path, keys: Keys, tmp_path: Path, what: str) -> None:
    path = tmp_path / f"{what}.pem"
    private = tmp_path / "private.pem"
    if what == "text":
        path.write_text("no key at all")
    elif what == "rsa":
        subprocess.run(
            ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024", "-out", private],
            check=True,
            capture_output=True,
        )
        subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", path], check=True)
    elif what == "curve":
        private, path = make_keys(tmp_path, "koblitz", "secp256k1")
    elif what == "private":
        path = keys[0]
    sign_archive(archive, keys[0])
    assert str(path) in refused("key-file", lambda: check(archive, path))
    if what != "private":
        wrong = private if what in ("rsa", "curve") else path
        assert str(wrong) in refused("key-file", lambda: sign_archive(archive, wrong))


# ---- checking --------------------------------------------------------------------------------


def test_an_unsigned_archive_is_refused(archive: Path, keys: Keys) -> None:
    said = refused("unsigned", lambda: check(archive, keys[1]))
    assert said.startswith("m.ptpkg is not signed, and a signature by key")


def test_the_signature_of_another_manifest_is_refused(archive: Path, keys: Keys) -> None:
    sign_archive(archive, keys[0])
    manifest, signature = members(archive)
    assert verify_signature(manifest, signature, [keys[1]], "m") == fingerprint(keys[1])
    refused("other-manifest", lambda: verify_signature(manifest + b" ", signature, [keys[1]], "m"))


def test_one_of_several_keys_is_enough(archive: Path, keys: Keys, tmp_path: Path) -> None:
    other = make_keys(tmp_path, "other")[1]
    sign_archive(archive, keys[0])
    assert check(archive, other, keys[1]) == fingerprint(keys[1])


@pytest.mark.parametrize(
    "damage", ["not json", "no envelope", "other key's", "bit", "empty", "payload", "media type"]
)
def test_a_broken_signature_is_refused(archive: Path, keys: Keys, tmp_path: Path, damage: str) -> None:
    sign_archive(archive, keys[0])
    manifest, signature = members(archive)
    assert signature is not None
    bundle = json.loads(signature)
    envelope = bundle["dsseEnvelope"]
    if damage == "no envelope":
        del bundle["dsseEnvelope"]
    elif damage == "other key's":  # that claims to be by ours
        other = tmp_path / "other.ptpkg"
        sign_archive(archive, make_keys(tmp_path, "other")[0], output=other)
        claimed = bundle["verificationMaterial"]
        bundle = json.loads(members(other)[1] or b"")
        bundle["verificationMaterial"] = claimed
    elif damage == "bit":
        sig = envelope["signatures"][0]["sig"]
        envelope["signatures"][0]["sig"] = sig[:20] + ("A" if sig[20] != "A" else "B") + sig[21:]
    elif damage == "empty":
        envelope["signatures"] = []
    elif damage == "payload":
        envelope["payload"] = "e30="
    elif damage == "media type":
        bundle["mediaType"] = "text/plain"
    broken = b"{" if damage == "not json" else json.dumps(bundle).encode()
    refused("broken-signature", lambda: verify_signature(manifest, broken, [keys[1]], "m"))


@pytest.mark.long
def test_a_child_process_says_the_same_and_imports_nothing_of_a_models(
    archive: Path, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_archive(archive, keys[0])
    manifest, signature = members(archive)
    model = tmp_path / "model"
    (model / "MAR-INF").mkdir(parents=True)
    (model / "model_signing.py").write_text("raise SystemExit('imported')")
    monkeypatch.setenv("PYTHONPATH", f"{model}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    known = [str(keys[1])]
    assert verify_signature_apart(manifest, signature, known, "m") == fingerprint(keys[1])
    said = refused("other-manifest", lambda: verify_signature_apart(manifest + b" ", signature, known, "m"))
    assert said.count("[other-manifest]") == 1
    refused("unsigned", lambda: verify_signature_apart(manifest, None, known, "m"))


def test_without_model_signing_the_error_says_what_to_install(archive: Path, keys: Keys) -> None:
    code = (
        "import sys; sys.modules['model_signing'] = None\n"
        "from pathlib import Path; from interpool.archiver_ext.verify.signing import sign_archive\n"
        f"sign_archive(Path({str(archive)!r}), Path({str(keys[0])!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "SignatureError: signatures need the model-signing package" in done.stderr
    assert "pip install 'interpool[sign]'" in done.stderr


@pytest.mark.long
def test_others_can_check_a_signature_with_model_signings_own_command(
    archive: Path, keys: Keys, tmp_path: Path
) -> None:
    """As docs/security.md says."""
    sign_archive(archive, keys[0])
    script = f"""
        unzip -p m.ptpkg '*/interpool-archive/manifest.json' > manifest.json
        unzip -p m.ptpkg '*/interpool-archive/signature.json' > signature.json
        {sys.executable} -m model_signing verify key manifest.json --signature signature.json --public_key PUB
    """.replace("PUB", str(keys[1]))
    good = subprocess.run(["sh", "-ec", script], cwd=tmp_path, capture_output=True, text=True)
    assert good.returncode == 0, good.stderr
    (tmp_path / "manifest.json").write_text((tmp_path / "manifest.json").read_text() + " ")
    check_only = script.strip().splitlines()[-1]
    bad = subprocess.run(["sh", "-ec", check_only], cwd=tmp_path, capture_output=True, text=True)
    assert bad.returncode != 0


def test_signing_elsewhere_leaves_the_archive_as_it_is(archive: Path, keys: Keys, tmp_path: Path) -> None:
    before = archive.read_bytes()
    archive.chmod(0o640)
    sign_archive(archive, keys[0], output=tmp_path / "signed.ptpkg")
    assert archive.read_bytes() == before
    assert stat.S_IMODE((tmp_path / "signed.ptpkg").stat().st_mode) == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {"m.ptpkg", "signed.ptpkg"}
