"""Which of a model's workers have answered, and when."""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from local_server import TorchServe

# An asker's own part of its requests' names: the log has those of earlier ones, which other workers answered.
_askers = itertools.count()


class Asker:
    """Sends numbered requests and keeps when each was answered, and whether rightly.

    Args:
        running: the server.
        model: its name there; it answers with numbers, and says ``answered`` and the request's id on stdout.
        expected: the right answer.
    """

    def __init__(self, running: TorchServe, model: str, expected: Sequence[float]) -> None:
        self._server = running
        self._model = model
        self._expected = expected
        self._said = re.compile(rf"W-(\d+)-{re.escape(model)}_1\.0-stdout .*? answered (\S+)")
        self._own = next(_askers)
        self._number = 0
        self._answered: dict[str, float] = {}
        self._took: dict[str, float] = {}

    def ask(self, count: int) -> None:
        """Send so many at once. Raises RuntimeError unless all are answered rightly."""
        with ThreadPoolExecutor(count) as threads:
            list(threads.map(self._one, range(self._number, self._number + count)))
        self._number += count

    def _one(self, number: int) -> None:
        name = f"{self._own}-{number}"
        start = time.perf_counter()
        answer = self._server.predict(self._model, {"id": name}, timeout=120)
        if answer.status != 200 or not self._is_right(json.loads(answer.body)):
            raise RuntimeError(f"a wrong answer: {answer.status} {answer.text}")
        self._answered[name] = time.perf_counter()
        self._took[name] = self._answered[name] - start

    def _is_right(self, got: Any) -> bool:
        return len(got) == len(self._expected) and all(
            math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6)
            for one, other in zip(got, self._expected, strict=True)
        )

    def until(self, workers: int, seconds: float = 60) -> float:
        """Ask until so many workers have answered; gives when the last of them first did."""
        deadline = time.perf_counter() + seconds
        while len(first := self.firsts()) < workers:
            if time.perf_counter() > deadline:
                raise RuntimeError(f"only {len(first)} of {workers} workers answered")
            self.ask(2 * workers)
        return max(map(self._answered.__getitem__, first.values()))

    def first_over_median(self) -> float:
        """How many times longer the slowest worker's first answer took than the median of all answers."""
        slowest = max(map(self._took.__getitem__, self.firsts().values()))
        return slowest / statistics.median(self._took.values())

    def firsts(self) -> dict[str, str]:
        """The name of the request that each worker answered first, by TorchServe's number of the worker."""
        first: dict[str, str] = {}
        for worker, name in self._said.findall(self._server.model_log()):
            if name in self._answered:
                first[worker] = min(first.get(worker, name), name, key=self._answered.__getitem__)
        return first
