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
        SignatureError: the file cannot be read, or is no PEM file of a public key on P-256, P-384 or P-521.
            Or cryptography is not installed, which comes with model-signing.
    """
    try:
        serialization = importlib.import_module("cryptography.hazmat.primitives.serialization")
    except ImportError as error:
        raise _absent(error) from None
    data = _key_bytes(key)
    if b"PRIVATE KEY" in data:
        raise SignatureError(
            f"{key} is a private key; a signature is checked with the public one: "
            f"`openssl ec -in {key} -pubout -out pub.pem`",
            "key-file",
        )
    try:
        public = serialization.load_pem_public_key(data)
        if public.curve.name not in ("secp256r1", "secp384r1", "secp521r1"):
            raise ValueError(f"its curve is {public.curve.name}")
    except Exception as error:  # noqa: BLE001 (cryptography's errors have no common base)
        raise _unusable(key, "public", error) from None
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return sha256(pem).hexdigest()


def signer(key: Path, password: str | None) -> Any:
    """Return model-signing's configuration that signs with a private key.

    Args:
        key: PEM file of the private key.
        password: of the key, if it is encrypted.

    Raises:
        SignatureError: no PEM file of a private key on P-256, P-384 or P-521, or a missing or wrong password;
            or model-signing is not installed.
    """
    library = model_signing()
    _key_bytes(key)
    hashing = library.hashing.Config().use_file_serialization(hashing_algorithm="sha256")
    config = library.signing.Config().set_hashing_config(hashing)
    secret: Any = password.encode() if password else None  # bytes, contrary to the annotation
    try:
        return config.use_elliptic_key_signer(private_key=key, password=secret)
    except TypeError as error:
        said = "is protected by a password: give it with --ask-password, or in INTERPOOL_KEY_PASSWORD"
        if password:
            said = "is not protected by a password, but one was given"
        raise SignatureError(f"{key} {said}", "key-password") from error
    except Exception as error:  # noqa: BLE001 (cryptography's errors have no common base)
        raise _unusable(key, "private", error) from None


def _unusable(key: Path, kind: str, error: Exception) -> SignatureError:
    said = str(error).partition("\n")[0][:100]
    if isinstance(error, AttributeError):  # it has no curve
        said = "it is a key of another kind"
    return SignatureError(
        f"{key} cannot be used as a {kind} key of an elliptic curve (P-256, P-384, P-521): "
        f"{said}; {_MAKE_KEYS}",
        "key-file",
    )


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


def model_signing() -> Any:
    """Return the library; it is imported only here, because that takes half a second.

    Raises:
        SignatureError: model-signing is not installed.
    """
    try:
        import model_signing
        import model_signing.hashing
        import model_signing.signing
        import model_signing.verifying
    except ImportError as error:
        raise _absent(error) from None
    return model_signing
