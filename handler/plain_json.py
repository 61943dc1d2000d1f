"""JSON as Python writes it, even if a model has replaced the methods of ``json``."""

from __future__ import annotations

import json


class _Encoder(json.JSONEncoder):
    encode = json.JSONEncoder.encode
    iterencode = json.JSONEncoder.iterencode


_ascii, _text = _Encoder(), _Encoder(ensure_ascii=False)


def as_json(value: object) -> str:
    """A text in ASCII, which any encoding can carry."""
    return _ascii.encode(value)


def as_readable_json(value: object) -> str:
    """A text for people, too."""
    return _text.encode(value)
