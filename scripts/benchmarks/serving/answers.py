"""Whether a server answers as the model does in this process."""

from __future__ import annotations

from benchmarks.serving.frameworks import ask
from benchmarks.serving.models import MODELS, build


class WrongAnswerError(RuntimeError):
    """What a server answered is not what the model answers."""


def right_answer(model: str, url: str) -> bytes:
    """The server's answer, once it has been compared with the model's own."""
    question = MODELS[model].question
    body, said = ask(url, question)
    expected = build(model).answer(question)
    if said != expected:
        raise WrongAnswerError(f"{said}, which is not {expected}")
    return body
