"""Signatures in archives: OpenSSF model signing with plain elliptic-curve keys, offline.

What is signed is the manifest, which holds the digest of every other member. The signature, a
sigstore bundle, is the archive's last member, so that it travels inside a .mar as well.

The model-signing package is an extra (``interpool[sign]``) and is imported only where a
signature is made or checked.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from interpool.native.archive_format import MANIFEST_PACKAGE, MANIFEST_RESOURCE, SIGNATURE_RESOURCE
from interpool.native.errors import ArchiveError, ManifestError, SignatureError
from interpool.native.reader import Record, check_digests, read_manifest, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MANIFEST_MEMBER = f"{MANIFEST_PACKAGE}/{MANIFEST_RESOURCE}"
SIGNATURE_MEMBER = f"{MANIFEST_PACKAGE}/{SIGNATURE_RESOURCE}"

# A bundle is 2 kB. What is longer is none, and is not parsed.
_BUNDLE_LIMIT = 1 << 20
_NO_DATE = (1980, 1, 1, 0, 0, 0)
_MAKE_KEYS = (
    "make a pair with `openssl ecparam -name prime256v1 -genkey -noout -out key.pem` and "
    "`openssl ec -in key.pem -pubout -out pub.pem`"
)


@dataclass(frozen=True)
class SignatureState:
    """What an archive says about its signature; nothing of it has been checked.

    Attributes:
        signed: whether there is a signature.
        fingerprint: of the key that it claims, in hex; "" if it names none or cannot be read.
    """

    signed: bool
    fingerprint: str

    def __str__(self) -> str:
        if not self.signed:
            return "unsigned"
        return f"signed by key {self.fingerprint or '(unreadable)'}, not verified"


def signature_state(records: Mapping[str, Record], file: IO[bytes]) -> SignatureState:
    """Whether an archive is signed, and by which key it claims to be. Checks nothing.

    Args:
        records: see read_records.
        file: the archive, opened.
    """
    record = records.get(SIGNATURE_MEMBER)
    if record is None:
        return SignatureState(signed=False, fingerprint="")
    return SignatureState(signed=True, fingerprint=claimed_fingerprint(read_member(file, record)))


def read_member(file: IO[bytes], record: Record) -> bytes:
    """The bytes of the manifest or of the signature, b"" for what is neither in size or form."""
    if not record.stored or (record.name == SIGNATURE_MEMBER and record.size > _BUNDLE_LIMIT):
        return b""
    return os.pread(file.fileno(), record.size, record.offset)


def claimed_fingerprint(bundle: bytes) -> str:
    """The fingerprint of the key that a bundle names, or ""."""
    try:
        hint = json.loads(bundle)["verificationMaterial"]["publicKey"]["hint"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    is_hex = isinstance(hint, str) and len(hint) == 64 and set(hint) <= set("0123456789abcdef")
    return hint if is_hex else ""


# ---- checking ---------------------------------------------------------------------------------


def verify_signature(manifest: bytes, bundle: bytes | None, keys: Sequence[Path], archive: str) -> str:
    """Check that one of the keys has signed the manifest.

    Args:
        manifest: its bytes.
        bundle: the signature's, or None if the archive has none.
        keys: PEM files of public keys.
        archive: its name, for messages.

    Returns:
        The fingerprint of the key: the SHA-256 of its PEM form, in hex.

    Raises:
        SignatureError: unsigned; signed by another key, or another manifest; the signature or
            a key cannot be read; model-signing is not installed.
    """
    known = {fingerprint(key): key for key in keys}
    if bundle is None:
        raise SignatureError(
            f"{archive} is not signed, and a signature by {_one_of(known)} is asked for. "
            "Sign it with `interpool sign`",
            "unsigned",
        )
    signer = claimed_fingerprint(bundle)
    if not signer:
        raise SignatureError(
            f"{archive}: its signature cannot be read. Sign it again with `interpool sign`",
            "broken-signature",
        )
    if signer not in known:
        raise SignatureError(
            f"{archive} is signed by key {signer}, which is not {_one_of(known)}", "wrong-key"
        )
    _check(manifest, bundle, known[signer], signer, archive)
    return signer


def _check(manifest: bytes, bundle: bytes, key: Path, signer: str, archive: str) -> None:
    library = _model_signing()
    with tempfile.TemporaryDirectory(prefix="interpool-verify-") as name:
        payload, signature = Path(name, MANIFEST_RESOURCE), Path(name, SIGNATURE_RESOURCE)
        payload.write_bytes(manifest)
        signature.write_bytes(bundle)
        # As `interpool sign` signs, and not as the bundle says that it was signed.
        hashing = library.hashing.Config().use_file_serialization(hashing_algorithm="sha256")
        config = library.verifying.Config().set_hashing_config(hashing)
        try:
            config.use_elliptic_key_verifier(public_key=key).verify(payload, signature)
        except ValueError as error:
            if "Signature mismatch" in str(error):
                raise SignatureError(
                    f"{archive}: its signature, by key {signer}, is that of another manifest: the "
                    "archive was changed after it was signed, or the signature was copied",
                    "other-manifest",
                ) from None
            raise _broken(archive, signer, error) from None
        except Exception as error:  # noqa: BLE001 -- of the parsers that the library calls
            raise _broken(archive, signer, error) from None


def _broken(archive: str, signer: str, error: Exception) -> SignatureError:
    said = str(error).strip().splitlines()
    return SignatureError(
        f"{archive}: its signature is not one that key {signer} has made "
        f"({type(error).__name__}{': ' + said[0][:200] if said else ''}). "
        "Sign it again with `interpool sign`",
        "broken-signature",
    )


def _one_of(known: Mapping[str, Path]) -> str:
    if not known:
        return "any key: none was given"
    if len(known) == 1:
        return f"key {next(iter(known))}"
    return f"one of {len(known)} keys ({', '.join(known)})"


# ---- signing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signed:
    """What ``sign_archive`` did: the file, the key's fingerprint, and whether one was replaced."""

    archive: Path
    fingerprint: str
    replaced: bool


def sign_archive(
    archive: Path, key: Path, *, output: Path | None = None, password: str | None = None
) -> Signed:
    """Sign an archive; it appears whole or not at all. What was signed before is signed anew.

    Args:
        archive: a hermetic archive. Its digests are checked first.
        key: PEM file of the private key: P-256, P-384 or P-521.
        output: the signed archive; default: in place of the given one.
        password: of the key, if it is encrypted.

    Raises:
        ArchiveError: the archive is missing, damaged, or not what its manifest says.
        SignatureError: the key cannot be used; model-signing is not installed.
    """
    shown = str(archive)
    signer = _private_fingerprint(key, password)
    with _opened(archive) as file:
        records = read_records(shown, file)
        manifest = read_manifest(shown, file, records)
        if manifest is None:
            raise ManifestError(
                f"{shown} has no manifest, which is what would be signed: make it with `interpool pack`",
                "no-manifest",
            )
        check_digests(shown, file, records, manifest)
        bundle = _sign(read_member(file, records[MANIFEST_MEMBER]), key, password)
        _replace_signature(file, archive, output or archive, bundle)
    return Signed(output or archive, signer, SIGNATURE_MEMBER in records)


def _sign(manifest: bytes, key: Path, password: str | None) -> bytes:
    library = _model_signing()
    with tempfile.TemporaryDirectory(prefix="interpool-sign-") as name:
        payload, signature = Path(name, MANIFEST_RESOURCE), Path(name, SIGNATURE_RESOURCE)
        payload.write_bytes(manifest)
        hashing = library.hashing.Config().use_file_serialization(hashing_algorithm="sha256")
        config = library.signing.Config().set_hashing_config(hashing)
        secret: Any = password.encode() if password else None  # bytes, whatever the annotation says
        config.use_elliptic_key_signer(private_key=key, password=secret).sign(payload, signature)
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
    """Write ``source``'s bytes with this signature as the last member, by a rename."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.absolute().parent)
    except OSError as error:
        raise ArchiveError(f"{target} cannot be written ({error.strerror})", "unwritable") from None
    try:
        with open(descriptor, "w+b") as copy:
            source.seek(0)
            shutil.copyfileobj(source, copy, 1 << 22)
            os.fchmod(copy.fileno(), os.fstat(source.fileno()).st_mode & 0o7777)
            _append(copy, archive, bundle)
            copy.flush()
            os.fsync(copy.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _append(file: IO[bytes], archive: Path, bundle: bytes) -> None:
    with zipfile.ZipFile(file, "a", allowZip64=True) as members:
        root = members.filelist[0].filename.partition("/")[0]
        name = f"{root}/{SIGNATURE_MEMBER}"
        if name in members.NameToInfo:
            last = max(members.filelist, key=lambda info: info.header_offset)
            if last.filename != name:
                raise SignatureError(
                    f"{archive}: its signature is not its last member, where `interpool sign` puts "
                    "it. Make the archive anew",
                    "signature-place",
                )
            # The new one takes the old one's place; the directory behind is written anew.
            members.filelist.remove(last)
            del members.NameToInfo[name]
            members.start_dir = last.header_offset
        members.writestr(zipfile.ZipInfo(name, _NO_DATE), bundle)


# ---- keys and the library ---------------------------------------------------------------------


def fingerprint(key: Path) -> str:
    """SHA-256, in hex, of a public key in its PEM form, as the signature's bundle names it.

    The same as ``openssl ec -pubin -in PUB.pem | sha256sum`` says.

    Raises:
        SignatureError: no PEM file of a public key on P-256, P-384 or P-521.
    """
    from hashlib import sha256

    serialization = _cryptography("serialization")
    data = _key_bytes(key)
    if b"PRIVATE KEY" in data:
        raise SignatureError(
            f"{key} is a private key; a signature is checked with the public one: "
            f"`openssl ec -in {key} -pubout -out pub.pem`",
            "key-file",
        )
    try:
        public = serialization.load_pem_public_key(data)
    except Exception as error:  # noqa: BLE001 -- of cryptography's, which has no common base
        raise SignatureError(
            f"{key} is no PEM file of a public key ({str(error).splitlines()[0][:100]}); {_MAKE_KEYS}",
            "key-file",
        ) from None
    return sha256(_pem(_require_curve(public, key))).hexdigest()


def _private_fingerprint(key: Path, password: str | None) -> str:
    from hashlib import sha256

    serialization = _cryptography("serialization")
    data = _key_bytes(key)
    try:
        private = serialization.load_pem_private_key(data, password.encode() if password else None)
    except TypeError as error:
        said = "is protected by a password: give it with --ask-password, or in INTERPOOL_KEY_PASSWORD"
        if password:
            said = "is not protected by a password, but one was given"
        raise SignatureError(f"{key} {said}", "key-password") from error
    except Exception as error:
        why = "its password is another one, or it is damaged" if password else "it is no such PEM file"
        raise SignatureError(f"{key} cannot be used as a private key: {why}; {_MAKE_KEYS}", "key-file") from (
            error
        )
    if not hasattr(private, "curve"):
        raise _no_curve(key)
    return sha256(_pem(_require_curve(private.public_key(), key))).hexdigest()


def _require_curve(public: Any, key: Path) -> Any:
    if getattr(getattr(public, "curve", None), "name", "") not in ("secp256r1", "secp384r1", "secp521r1"):
        raise _no_curve(key)
    return public


def _no_curve(key: Path) -> SignatureError:
    return SignatureError(
        f"{key} is no key of an elliptic curve that model signing knows (P-256, P-384, P-521); {_MAKE_KEYS}",
        "key-file",
    )


def _pem(public: Any) -> bytes:
    serialization = _cryptography("serialization")
    pem: bytes = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return pem


def _key_bytes(key: Path) -> bytes:
    try:
        return key.read_bytes()
    except OSError as error:
        raise SignatureError(f"key {key} cannot be read ({error.strerror})", "key-file") from None


def _absent(error: ImportError) -> SignatureError:
    return SignatureError(
        f"signatures need the model-signing package, which cannot be imported ({error}): "
        "pip install 'interpool[sign]'",
        "model-signing",
    )


def _cryptography(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"cryptography.hazmat.primitives.{module}")
    except ImportError as error:
        raise _absent(error) from None


def _model_signing() -> Any:
    """The library, imported only here: it takes half a second."""
    try:
        import model_signing
        import model_signing.hashing
        import model_signing.signing
        import model_signing.verifying
    except ImportError as error:
        raise _absent(error) from None
    return model_signing
