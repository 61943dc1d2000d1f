"""Checks the signature in an archive, in this process or in a child process.

Run as a program, this module is the child process.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from interpool.archiver_ext.verify.signing import claimed_fingerprint, signed_digests
from interpool.archiver_ext.verify.signing_keys import fingerprint, model_signing
from interpool.native.archive.format import MANIFEST_RESOURCE, SIGNATURE_RESOURCE
from interpool.native.child_process import ChildError, Program, run, serve
from interpool.native.errors import SignatureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CHILD_TIMEOUT_S = 120.0


def verify_signature(manifest: bytes, bundle: bytes | None, keys: Sequence[Path], archive: str) -> str:
    """Check that one of the keys has signed the manifest.

    Args:
        manifest: its bytes.
        bundle: the signature's bytes, or None if the archive has none.
        keys: PEM files of public keys, at least one.
        archive: its name, for messages.

    Returns:
        The fingerprint of the key: the SHA-256 of its PEM form, in hex.

    Raises:
        SignatureError: unsigned; signed by another key, or for another manifest; the signature or a key
            cannot be read; model-signing is not installed.
    """
    known = {fingerprint(key): key for key in keys}
    if bundle is None:
        raise _unsigned(archive, [*known])
    signer = claimed_fingerprint(bundle)
    if not signer:
        raise SignatureError(
            f"{archive}: its signature cannot be read. Sign it again with `interpool sign`",
            "broken-signature",
        )
    if signer not in known:
        raise SignatureError(
            f"{archive} is signed by key {signer}, which is not {_one_of([*known])}", "wrong-key"
        )
    _check(manifest, bundle, known[signer], signer, archive)
    return signer


def _check(manifest: bytes, bundle: bytes, key: Path, signer: str, archive: str) -> None:
    library = model_signing()
    with tempfile.TemporaryDirectory(prefix="interpool-verify-") as name:
        payload, signature = Path(name, MANIFEST_RESOURCE), Path(name, SIGNATURE_RESOURCE)
        payload.write_bytes(manifest)
        signature.write_bytes(bundle)
        # Use the method of `interpool sign`, not the one that the bundle names.
        hashing = library.hashing.Config().use_file_serialization(hashing_algorithm="sha256")
        config = library.verifying.Config().set_hashing_config(hashing)
        try:
            config.use_elliptic_key_verifier(public_key=key).verify(payload, signature)
        except ValueError as error:
            signed = signed_digests(bundle)
            if signed and sha256(manifest).hexdigest() not in signed:
                raise SignatureError(
                    f"{archive}: its signature, by key {signer}, is that of another manifest: the "
                    "archive was changed after it was signed, or the signature was copied",
                    "other-manifest",
                ) from None
            raise _broken(archive, signer, error) from None
        except Exception as error:  # noqa: BLE001 (the library's parsers raise many types)
            raise _broken(archive, signer, error) from None


def _broken(archive: str, signer: str, error: Exception) -> SignatureError:
    said = str(error).strip().splitlines()
    return SignatureError(
        f"{archive}: its signature is not one that key {signer} has made "
        f"({type(error).__name__}{': ' + said[0][:200] if said else ''}). "
        "Sign it again with `interpool sign`",
        "broken-signature",
    )


def _unsigned(archive: str, keys: list[str]) -> SignatureError:
    return SignatureError(
        f"{archive} is not signed, and a signature by {_one_of(keys)} is asked for. "
        "Sign it with `interpool sign`",
        "unsigned",
    )


def _one_of(keys: list[str]) -> str:
    return f"key {keys[0]}" if len(keys) == 1 else f"one of the {len(keys)} keys {', '.join(keys)}"


# ---- in a child process -----------------------------------------------------------------------


@dataclass(frozen=True)
class SignatureJob:
    """The arguments of ``verify_signature``."""

    manifest: bytes
    bundle: bytes
    keys: list[Path]
    archive: str


@dataclass(frozen=True)
class SignatureResult:
    """The result of ``verify_signature``, or message and rule of its SignatureError."""

    signer: str = ""
    message: str = ""
    rule: str = ""


PROGRAM: Final = Program(__spec__.name, SignatureJob, SignatureResult)


def verify_signature_apart(manifest: bytes, bundle: bytes | None, keys: Sequence[str], archive: str) -> str:
    """Run ``verify_signature`` in a child process, so that its imports are not kept.

    For servers: model-signing takes half a second and 50 MB. The child imports nothing from a model's
    directory, and has no access to the archive.

    Args:
        manifest: as in verify_signature.
        bundle: as in verify_signature.
        keys: paths of PEM files of public keys, at least one.
        archive: as in verify_signature.

    Raises:
        SignatureError: as for verify_signature; or the child process failed.
    """
    if bundle is None:
        raise _unsigned(archive, [*keys])
    job = SignatureJob(manifest, bundle, [Path(key) for key in keys], archive)
    try:
        result = run(PROGRAM, job, env=_without_models({**os.environ}), timeout=_CHILD_TIMEOUT_S)
    except ChildError as error:
        raise SignatureError(
            f"{archive}: the process that checks its signature {error}", "signature-check"
        ) from None
    if not result.signer:
        raise SignatureError(result.message, result.rule)
    return result.signer


def _without_models(environment: dict[str, str]) -> dict[str, str]:
    """Remove models' directories, which TorchServe adds to its worker's PYTHONPATH."""
    path = [
        entry
        for entry in environment.get("PYTHONPATH", "").split(os.pathsep)
        if entry and not os.path.exists(os.path.join(entry, "MAR-INF"))
    ]
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}


def _check_apart(job: SignatureJob) -> Iterator[SignatureResult]:
    try:
        yield SignatureResult(verify_signature(job.manifest, job.bundle, job.keys, job.archive))
    except SignatureError as error:
        yield SignatureResult(message=error.message, rule=error.rule)


if __name__ == "__main__":
    serve(PROGRAM, _check_apart)
