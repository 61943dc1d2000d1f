"""Checks the signature in an archive: here, or in a child process.

The child, ``python -P -m interpool.archiver_ext.verify.signature_check``, takes a job and gives its
answer as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.archiver_ext.verify.signing import claimed_fingerprint
from interpool.archiver_ext.verify.signing_keys import fingerprint, model_signing
from interpool.native.archive.format import MANIFEST_RESOURCE, SIGNATURE_RESOURCE
from interpool.native.errors import SignatureError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CHILD_TIMEOUT_S = 120.0


def verify_signature(manifest: bytes, bundle: bytes | None, keys: Sequence[Path], archive: str) -> str:
    """Check that one of the keys has signed the manifest.

    Args:
        manifest: its bytes.
        bundle: the signature's, or None if the archive has none.
        keys: PEM files of public keys, at least one.
        archive: its name, for messages.

    Returns:
        The fingerprint of the key: the SHA-256 of its PEM form, in hex.

    Raises:
        SignatureError: unsigned; signed by another key, or another manifest; the signature or
            a key cannot be read; model-signing is not installed.
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


def _unsigned(archive: str, keys: list[str]) -> SignatureError:
    return SignatureError(
        f"{archive} is not signed, and a signature by {_one_of(keys)} is asked for. "
        "Sign it with `interpool sign`",
        "unsigned",
    )


def _one_of(keys: list[str]) -> str:
    return f"key {keys[0]}" if len(keys) == 1 else f"one of the {len(keys)} keys {', '.join(keys)}"


# ---- in a process of its own ------------------------------------------------------------------


def verify_signature_apart(manifest: bytes, bundle: bytes | None, keys: Sequence[str], archive: str) -> str:
    """verify_signature in a child process, which is gone afterwards with all that it imported.

    For servers: model-signing takes half a second and 50 MB of the process that imports it.
    The child imports nothing from a model's directory, and does not see the archive.
    """
    if bundle is None:
        raise _unsigned(archive, [*keys])
    job = {"manifest": manifest.hex(), "bundle": bundle.hex(), "keys": [*keys], "archive": archive}
    try:
        done = _run(job)
    except subprocess.TimeoutExpired:
        raise _no_answer(archive, f"took longer than {_CHILD_TIMEOUT_S:g} s") from None
    try:
        said = json.loads(done.stdout)
    except ValueError:
        raise _no_answer(archive, f"ended with status {done.returncode} and no answer") from None
    if "signer" in said:
        return str(said["signer"])
    raise SignatureError(said["message"], said["rule"])


def _run(job: Mapping[str, object]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "interpool.archiver_ext.verify.signature_check"],
        input=json.dumps(job).encode(),
        stdout=subprocess.PIPE,
        env=_without_models({**os.environ}),
        timeout=_CHILD_TIMEOUT_S,
        check=False,
    )


def _no_answer(archive: str, what: str) -> SignatureError:
    return SignatureError(f"{archive}: the process that checks its signature {what}", "signature-check")


def _without_models(environment: dict[str, str]) -> dict[str, str]:
    """TorchServe puts a model's directory on its worker's PYTHONPATH."""
    path = [
        entry
        for entry in environment.get("PYTHONPATH", "").split(os.pathsep)
        if entry and not os.path.exists(os.path.join(entry, "MAR-INF"))
    ]
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}


def main() -> None:
    """Check the signature that stdin describes, as JSON; the answer goes to stdout."""
    job = json.load(sys.stdin)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # model-signing prints
    try:
        signer = verify_signature(
            bytes.fromhex(job["manifest"]),
            bytes.fromhex(job["bundle"]),
            [Path(key) for key in job["keys"]],
            job["archive"],
        )
        said = {"signer": signer}
    except SignatureError as error:
        said = {"message": str(error).removesuffix(f" [{error.rule}]"), "rule": error.rule}
    with answer:
        json.dump(said, answer)


if __name__ == "__main__":
    main()
