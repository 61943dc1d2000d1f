"""What an interpreter is asked to admit."""

from __future__ import annotations

from interpool.handler.signature_policy import SignaturePolicy
from interpool.native.inside.packages import open_package


def admit(archive: str, *keys: str) -> None:
    """As the server does before anything in an archive runs."""
    SignaturePolicy(keys).check(open_package(archive))
