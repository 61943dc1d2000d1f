"""Signs archives: OpenSSF model signing with elliptic-curve keys, offline.

The signature covers the manifest, which contains the digests of all other members. It is a sigstore bundle
and the archive's last member, so it is also part of a .mar.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from interpool.archiver_ext.appending import drop_last_member, last_member, opened_to_append, write_member
from interpool.archiver_ext.verify.signing_keys import signer
from interpool.native.archive.format import MANIFEST_RESOURCE, SIGNATURE_RESOURCE
from interpool.native.archive.reader import (
    MANIFEST_MEMBER,
    SIGNATURE_MEMBER,
    Record,
    check_digests,
    read_manifest,
    read_member,
    read_records,
)
from interpool.native.errors import ArchiveError, ManifestError, SignatureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A bundle has 2 kB. Larger ones are not parsed.
_BUNDLE_LIMIT = 1 << 20


@dataclass(frozen=True)
class SignatureState:
    """The unchecked state of an archive's signature.

    Attributes:
        signed: whether there is a signature.
        fingerprint: of the key that it names, in hex; "" if it names none or cannot be read.
    """

    signed: bool
    fingerprint: str

    def __str__(self) -> str:
        if not self.signed:
            return "unsigned"
        return f"signed by key {self.fingerprint or '(unreadable)'}, not verified"


def signature_state(records: Mapping[str, Record], file: IO[bytes]) -> SignatureState:
    """Return whether an archive is signed, and the key that the signature names. Checks nothing.

    Args:
        records: see read_records.
        file: the open archive.

    Raises:
        StructureError: it is damaged.
        OSError: it cannot be read.
    """
    bundle = signature_bytes("", file, records)
    return SignatureState(bundle is not None, claimed_fingerprint(bundle or b""))


def signature_bytes(path: str, file: IO[bytes], records: Mapping[str, Record]) -> bytes | None:
    """Return the signature in an archive; b"" if it is too large, None if there is none.

    Args:
        path: the archive's path as the user knows it.
        file: the open archive.
        records: see read_records.

    Raises:
        StructureError: it is damaged.
        OSError: it cannot be read.
    """
    record = records.get(SIGNATURE_MEMBER)
    if record is None:
        return None
    return read_member(path, file, record) if record.size <= _BUNDLE_LIMIT else b""


def claimed_fingerprint(bundle: bytes) -> str:
    """Return the fingerprint of the key that a bundle names, or ""."""
    try:
        hint = json.loads(bundle)["verificationMaterial"]["publicKey"]["hint"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    is_hex = isinstance(hint, str) and len(hint) == 64 and set(hint) <= set("0123456789abcdef")
    return hint if is_hex else ""


def signed_digests(bundle: bytes) -> list[str]:
    """Return the SHA-256 digests, in hex, that a bundle signs; [] if it cannot be read. Checks nothing."""
    try:
        payload = json.loads(base64.b64decode(json.loads(bundle)["dsseEnvelope"]["payload"]))
        return [resource["digest"] for resource in payload["predicate"]["resources"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


# ---- signing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signed:
    """The result of ``sign_archive``.

    Attributes:
        archive: the signed file.
        fingerprint: of the key, in hex.
        replaced: whether the archive had a signature before.
    """

    archive: Path
    fingerprint: str
    replaced: bool


def sign_archive(
    archive: Path, key: Path, *, output: Path | None = None, password: str | None = None
) -> Signed:
    """Sign an archive, or replace its signature; the output appears only when it is complete.

    Args:
        archive: a hermetic archive. Its digests are checked first.
        key: PEM file of the private key: P-256, P-384 or P-521.
        output: the signed archive; default: replaces the given one.
        password: of the key, if it is encrypted.

    Raises:
        ArchiveError: the archive is missing, damaged, or does not match its manifest; or the output cannot be
            written.
        SignatureError: the key cannot be used; model-signing is not installed; the present signature is not
            the last member.
    """
    shown = str(archive)
    signing = signer(key, password)
    with _opened(archive) as file:
        records = read_records(shown, file)
        manifest = read_manifest(shown, file, records)
        if manifest is None:
            raise ManifestError(
                f"{shown} has no manifest, which is what would be signed: make it with `interpool pack`",
                "no-manifest",
            )
        check_digests(shown, file, records, manifest)
        bundle = _sign(read_member(shown, file, records[MANIFEST_MEMBER]), signing)
        _replace_signature(file, archive, output or archive, bundle)
    return Signed(output or archive, claimed_fingerprint(bundle), SIGNATURE_MEMBER in records)


def _sign(manifest: bytes, signing: Any) -> bytes:
    with tempfile.TemporaryDirectory(prefix="interpool-sign-") as name:
        payload, signature = Path(name, MANIFEST_RESOURCE), Path(name, SIGNATURE_RESOURCE)
        payload.write_bytes(manifest)
        signing.sign(payload, signature)
        return signature.read_bytes()


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[IO[bytes]]:
    try:
        file = archive.open("rb")
    except OSError as error:
        raise ArchiveError(f"{archive} cannot be read ({error.strerror})", "unreadable") from None
    with file:
        yield file


def _replace_signature(source: IO[bytes], archive: Path, target: Path, bundle: bytes) -> None:
    """Write the archive with this signature as its last member, and rename it; keep a symbolic link."""
    real = Path(os.path.realpath(target))
    if os.path.exists(real) and not real.is_file():  # a device or a pipe would be replaced by a file
        raise ArchiveError(f"{target} cannot be written: it exists, and is no file", "unwritable")
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
    except OSError as error:
        raise _unwritable(target, error) from None
    try:
        with open(descriptor, "w+b") as copy:
            source.seek(0)
            shutil.copyfileobj(source, copy, 1 << 22)
            os.fchmod(copy.fileno(), os.fstat(source.fileno()).st_mode & 0o7777)
            _append(copy, archive, bundle)
            copy.flush()
            os.fsync(copy.fileno())
        os.replace(name, real)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            raise _unwritable(target, error) from None
        raise


def _unwritable(target: Path, error: OSError) -> ArchiveError:
    return ArchiveError(f"{target} cannot be written ({error.strerror})", "unwritable")


def _append(file: IO[bytes], archive: Path, bundle: bytes) -> None:
    with opened_to_append(file) as members:
        if any(_is_signature(name) for name in members.namelist()):
            if not _is_signature(last_member(members).filename):
                raise SignatureError(
                    f"{archive}: its signature is not its last member, where `interpool sign` puts "
                    "it. Pack the archive again",
                    "signature-place",
                )
            drop_last_member(members)
        write_member(members, SIGNATURE_MEMBER, bundle)


def _is_signature(name: str) -> bool:
    return name.partition("/")[2] == SIGNATURE_MEMBER
