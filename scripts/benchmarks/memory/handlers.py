"""What ordinary archives take, served as they are: stock TorchServe's workers, and the pool."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

from local_server import TorchServe

from benchmarks.serving.models import IMPORTED, REQUEST
from benchmarks.shared import archiving
from benchmarks.shared.memory import served_mb


def measure(models: int, workers: int) -> dict[str, float]:
    """Both servers with so many handlers, each with so many workers.

    Returns:
        For ``stock`` and ``pool``: the memory (MB) and the time (s) from the first registration until every
        model has answered, under ``SERVER, MB`` and ``SERVER, s``; and the numbers given.

    Raises:
        RuntimeError: a model did not answer, or the servers' answers differ.
    """
    row: dict[str, float] = {"models": models, "workers": workers}
    answers = {}
    for name in ("stock", "pool"):
        row[f"{name}, MB"], row[f"{name}, s"], answers[name] = _serve(name, models, workers)
    for stock, pool in zip(answers["stock"], answers["pool"], strict=True):
        if not math.isclose(stock, pool, abs_tol=1e-5):
            raise RuntimeError(f"stock answered {answers['stock']}, the pool {answers['pool']}")
    return row


def _serve(name: str, models: int, workers: int) -> tuple[float, float, list[float]]:
    """MB, seconds, and the one answer that all models gave."""
    there = {"INTERPOOL_ORDINARY_ARCHIVES": "pool"}
    with TorchServe(overlay=name == "pool", environment=there if name == "pool" else {}) as running:
        for number in range(models):
            with tempfile.TemporaryDirectory() as work:
                handler = archiving.ordinary("benchmarks.serving.models:Bert", Path(work), IMPORTED)
                archiving.archive(f"m{number}", running.store, handler)
        answers: list[list[float]] = []
        begun = time.monotonic()
        for number in range(models):
            running.checked(running.register(f"m{number}.mar", initial_workers=workers))
            answers.append(_ask(running, f"m{number}"))
        seconds = time.monotonic() - begun
        for number in range(models):
            answers += [_ask(running, f"m{number}") for _ in range(2 * workers)]
        if any(answer != answers[0] for answer in answers):
            raise RuntimeError(f"{name}: answers of one model differ")
        time.sleep(3)  # until memory that loading has freed is given back
        return served_mb(running), seconds, answers[0]


def _ask(running: TorchServe, model: str) -> list[float]:
    numbers: list[float] = running.checked(running.predict(model, REQUEST, timeout=120)).json["y"]
    return numbers
