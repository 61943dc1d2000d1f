"""Keys that sign archives, and the optional library for signing (``interpool[sign]``)."""

from __future__ import annotations

import importlib
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from interpool.native.errors import SignatureError

if TYPE_CHECKING:
    from pathlib import Path

_MAKE_KEYS = (
    "make a pair with `openssl ecparam -name prime256v1 -genkey -noout -out key.pem` and "
    "`openssl ec -in key.pem -pubout -out pub.pem`"
)


def fingerprint(key: Path) -> str:
    """Return the SHA-256, in hex, of a public key in its PEM form, as a signature's bundle names it.

    Equals ``openssl ec -pubin -in PUB.pem | sha256sum``.

    Raises:
        SignatureError: no PEM file of a public key on P-256, P-384 or P-521.
    """
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
    except Exception as error:  # noqa: BLE001 (cryptography's errors have no common base)
        raise SignatureError(
            f"{key} is not a PEM file of a public key ({str(error).splitlines()[0][:100]}); {_MAKE_KEYS}",
            "key-file",
        ) from None
    return sha256(_pem(_require_curve(public, key))).hexdigest()


def private_fingerprint(key: Path, password: str | None) -> str:
    """Return the fingerprint of the public key of a private one.

    Args:
        key: PEM file of the private key.
        password: of the key, if it is encrypted.

    Raises:
        SignatureError: no PEM file of a private key on P-256, P-384 or P-521, or a missing or wrong password.
    """
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
        why = "its password is another one, or it is damaged" if password else "it is not a PEM file of one"
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
        f"{key} is not a key of an elliptic curve for model signing (P-256, P-384, P-521); {_MAKE_KEYS}",
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
    try:
        return importlib.import_module(f"cryptography.hazmat.primitives.{module}")
    except ImportError as error:
        raise _absent(error) from None


def model_signing() -> Any:
    """Return the library; it is imported only here, because that takes half a second."""
    try:
        import model_signing
        import model_signing.hashing
        import model_signing.signing
        import model_signing.verifying
    except ImportError as error:
        raise _absent(error) from None
    return model_signing
