"""Parses the paths of TorchServe's inference API."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from interpool.handler.direct.job import Refusal

BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_BAD = "\ufffd".encode()
# The first parts of the paths of TorchServe's management interface.
_MANAGEMENT = frozenset(("models", "workflows", "token"))


def as_text(raw: bytes) -> str:
    """A text in UTF-8, as TorchServe decodes it: U+FFFD for a bad byte, and for a whole surrogate."""
    return _SURROGATE.sub(_BAD, raw).decode(errors="replace")


class Wish(Enum):
    """The kind of a request."""

    DESCRIPTION = "description"
    PING = "ping"
    PREDICT = "predict"
    READY = "ready"
    METADATA = "metadata"
    SERVER = "server"  # about the whole server, by the Open Inference Protocol
    ELSEWHERE = "elsewhere"


class Asked(NamedTuple):
    """A path that was parsed.

    Attributes:
        wish: the kind of the request.
        model: the model's name in the path; "" if it has none.
        version: the version in the path; None if it has none.
        headers: headers that TorchServe adds to the request's own, for the handler; in Latin-1, or as text.
        takes_query: whether the query's parameters go to the handler.
        rest: the last part of the path of a request about the server.
    """

    wish: Wish
    model: str = ""
    version: str | None = None
    headers: Mapping[bytes, bytes | str] = {}
    takes_query: bool = False
    rest: str = ""


def not_found() -> Refusal:
    """TorchServe's answer for a path that it does not know."""
    return Refusal(
        404,
        "ResourceNotFoundException",
        "Requested resource is not found, please refer to API document.",
    )


def _explain(yes: bool) -> bytes:
    return b"True" if yes else b"False"


def _as_header(text: str) -> bytes | str:
    """A header's value, which HTTP has in Latin-1; the text itself if it has other characters."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()  # some servers leave surrogates in a path


def understand(path: str, raw_path: bytes, method: str) -> Asked:
    """Parse a request's path.

    Args:
        path: the path, with its percent signs decoded.
        raw_path: the path as the client sent it.
        method: the request's HTTP method.

    Raises:
        Refusal: TorchServe would refuse the path with any models.
    """
    return (_kept if len(path) < _MOST_KEPT else _understood)(path, raw_path, method)


def _understood(path: str, raw_path: bytes, method: str) -> Asked:
    if b"%" in raw_path and BAD_ESCAPE.search(raw_path):
        raise Refusal(403, "IllegalArgumentException", "The path has a % without two hexadecimal digits.")
    segments = path.split("/")
    while segments and not segments[-1]:
        segments.pop()
    count = len(segments)
    if count == 0 or (count == 2 and segments[1] == "api-description"):
        if count or method == "OPTIONS":
            return Asked(Wish.DESCRIPTION)
        raise Refusal(
            405, "MethodNotAllowedException", "Requested method is not allowed, please refer to API document."
        )
    if count == 1:
        raise not_found()
    asked = _inference(segments) or _open_inference(segments)
    if asked is None and segments[1] in _MANAGEMENT:
        raise not_found()  # TorchServe may have its management interface at its inference address
    return asked or Asked(Wish.ELSEWHERE)


# Clients ask the same few paths again and again.
_MOST_KEPT = 200  # characters
_kept = functools.lru_cache(1024)(_understood)


def _inference(segments: list[str]) -> Asked | None:
    count, first = len(segments), segments[1]
    if first in ("predictions", "explanations"):
        if count < 3:
            raise not_found()
        headers = {
            b"url_path": _as_header("/".join(segments[4:])),
            b"explain": _explain(first == "explanations"),
        }
        return Asked(Wish.PREDICT, segments[2], segments[3] if count > 3 else None, headers)
    if first == "ping":
        return Asked(Wish.PING)
    if first == "invocations" or (count == 4 and first == "models"):
        if first == "invocations" and count == 2:
            return Asked(Wish.PREDICT, takes_query=True)
        if first == "models" and segments[3] == "invoke":
            return Asked(Wish.PREDICT, segments[2], takes_query=True)
        raise not_found()
    if count == 3 and segments[2] == "predict":
        return Asked(Wish.PREDICT, first, takes_query=True)
    if count == 4 and segments[3] == "predict":
        return Asked(Wish.PREDICT, first, segments[2], takes_query=True)
    return None


def _open_inference(segments: list[str]) -> Asked | None:
    if segments[1] == "v1" and len(segments) == 4 and segments[2] == "models":
        name, colon, verb = segments[3].partition(":")
        if colon and verb.startswith(("predict", "explain")):
            return Asked(Wish.PREDICT, name, headers={b"explain": _explain(verb.startswith("explain"))})
        return None
    if segments[1] != "v2":
        return None
    if len(segments) == 2 or segments[2] == "health":
        rest = "/".join(segments[2:])
        return Asked(Wish.SERVER, rest=rest) if rest in ("", "health/live", "health/ready") else None
    if segments[2] != "models" or len(segments) < 4:
        return None
    name, wished = segments[3], segments[4:]
    version: str | None = None
    if len(wished) > 1 and wished[0] == "versions":
        version, wished = wished[1], wished[2:]
    if wished in (["infer"], ["explain"]):
        headers = {b"explain": _explain(wished == ["explain"])}
        return Asked(Wish.PREDICT, name.partition(":")[0], version, headers)
    if wished == ["ready"]:
        return Asked(Wish.READY, name, version)
    return Asked(Wish.METADATA, name, version) if not wished else None
