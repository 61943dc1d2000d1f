"""The interface through which packing and verification have requests answered by the serving layer above.

The layer is imported by name, only in processes that may run an archive's code: child processes and private
interpreters.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Final

from interpool.native.archive.format import Batches, Parts

_MODULE: Final = "interpool.handler.backend.serve_check"


@dataclass(frozen=True)
class FoundRequest:
    """An HTTP request whose answer equals that of a direct call of the model.

    Attributes:
        content_type: of its body.
        body: its body.
        batches: how requests become calls; None for a handler.
        parts: see Serving.
        part: see RequestRecord.
        notes: descriptions of values that could not be compared, and of required server settings.
        answer_bytes: see RequestRecord.
    """

    content_type: str
    body: bytes
    batches: Batches | None
    parts: Parts
    part: int | None
    notes: list[str] = field(default_factory=list)
    answer_bytes: int = 0


@dataclass(frozen=True)
class ServeCheck:
    """The result of serving the example inputs: a working request, or why there is none and what to do."""

    found: FoundRequest | None = None
    refusal: str = ""


def serving_side() -> Any:
    """Import the serving layer, and with it torch and its other dependencies.

    Returns:
        The module ``serve_check``; its functions ``find_request`` and ``repeat_request`` are the interface.
    """
    return importlib.import_module(_MODULE)
