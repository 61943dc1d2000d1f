"""Answers of a batch as its clients read them, and what batches are proven of."""

from __future__ import annotations

import json
from typing import Any

from interpool.handler.backend.inputs import Arguments, arguments
from interpool.handler.errors import InputError


def read(answers: list[Any], context: Any) -> list[Any]:
    """What each client gets: JSON decoded, text as text, bytes as they are.

    Args:
        answers: of a handler's.
        context: TorchServe's, which has their content types.
    """
    return [_read(answer, context.get_response_content_type(index)) for index, answer in enumerate(answers)]


def proven_by(body: Any) -> Arguments | None:
    """What a proof is of that was made with this body; None if it cannot be understood."""
    try:
        return arguments({"body": body}, {})
    except InputError:
        return None


def _read(answer: Any, content_type: str | None) -> Any:
    if not isinstance(answer, bytes) or content_type is None:
        return answer
    if content_type == "application/json":
        return json.loads(answer)
    return answer.decode() if content_type.startswith("text/") else answer
