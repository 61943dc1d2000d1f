"""Parses a request's body as TorchServe's frontend does: a form by its fields, all else as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any
from urllib.parse import unquote_to_bytes

from interpool.handler.direct.job import Parameter, Refusal
from interpool.handler.direct.paths import BAD_ESCAPE, as_text

_FORM = b"application/x-www-form-urlencoded"
_MULTIPART = b"multipart/form-data"
_UPLOAD = b"application/octet-stream"  # the type of a file whose part names none
MOST_FIELDS = 1000
_FIELD = re.compile(rb"[^&]+")


def parameters_of(content_type: bytes, body: bytes) -> list[Parameter]:
    """The parameters of a request's body.

    Args:
        content_type: the request's header; b"" if it has none.
        body: the whole body.

    Raises:
        Refusal: the body is a form that is malformed, incomplete, or has too many fields.
    """
    mime, _, options = content_type.partition(b";")
    lowered = mime.strip().lower()
    if lowered == _MULTIPART and b"boundary" in options.lower():
        return _multipart(content_type, body)
    if lowered == _FORM:
        # TorchServe ignores a last field without a value.
        whole, _, last = body.rpartition(b"&")
        return _url_encoded(body if b"=" in last else whole)
    # In UTF-8, as workers decode it. As in TorchServe, each byte of a header is a Latin-1 character.
    kind = mime if mime.isascii() else mime.decode("latin-1").encode()
    return [Parameter(b"body", kind, body)]


def query_parameters(query: bytes) -> list[Parameter]:
    """The parameters after a path's question mark.

    Raises:
        Refusal: the query is malformed, or has too many fields.
    """
    # TorchServe's frontend takes the values for text, and those of a form for bytes.
    return [each._replace(value=_as_utf8(each.value)) for each in _url_encoded(query)]


def _url_encoded(text: bytes) -> list[Parameter]:
    pairs = [each[0].partition(b"=") for each in islice(_FIELD.finditer(text), MOST_FIELDS + 1)]
    if len(pairs) > MOST_FIELDS:
        raise _bad_form(f"it has more than {MOST_FIELDS} fields")
    if BAD_ESCAPE.search(text):
        raise _bad_form("it has a % that two hexadecimal digits do not follow")
    return [Parameter(_as_utf8(_plain(name)), b"", _plain(value)) for name, _, value in pairs]


def _plain(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


def _as_utf8(raw: bytes) -> bytes:
    """A text in UTF-8, as workers decode it."""
    return raw if raw.isascii() else as_text(raw).encode()


def _bad_form(why: str) -> Refusal:
    return Refusal(400, "BadRequestException", f"The form cannot be read: {why}.")


class _Parts:
    """Collects the parts that the multipart parser finds."""

    def __init__(self) -> None:
        self.found: list[Parameter] = []
        self.is_whole = False
        self._name, self._value = b"", b""
        self._headers: dict[bytes, bytes] = {}
        self._data: list[bytes] = []

    def callbacks(self) -> dict[str, Any]:
        return {
            "on_part_begin": self._begin,
            "on_part_data": lambda data, start, end: self._data.append(bytes(data[start:end])),
            "on_part_end": self._end,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_end": self._whole,
        }

    def _begin(self) -> None:
        self._headers, self._data = {}, []

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _end(self) -> None:
        from python_multipart.multipart import parse_options_header

        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        if b"name" not in options:
            raise _bad_form("a part of it has no name")
        if len(self.found) == MOST_FIELDS:
            raise _bad_form(f"it has more than {MOST_FIELDS} fields")
        own = (
            self._headers.get(b"content-type", _UPLOAD).partition(b";")[0] if b"filename" in options else b""
        )
        self.found.append(Parameter(_as_utf8(options[b"name"]), _as_utf8(own), b"".join(self._data)))

    def _whole(self) -> None:
        self.is_whole = True


def _multipart(content_type: bytes, body: bytes) -> list[Parameter]:
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser, parse_options_header

    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise _bad_form("its content type has no boundary")
    parts = _Parts()
    callbacks: Mapping[str, Any] = parts.callbacks()
    try:
        parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise _bad_form(str(error)) from None
    if not parts.is_whole:
        raise _bad_form("it ends before its last boundary")
    return parts.found
