"""Counts the answers of the direct address, and their times, for each model.

The event loop's thread writes the counts, and the host's thread reads them. It reads each value by itself,
and Python's GIL keeps each value consistent.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TypedDict

TIME_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ModelTraffic(TypedDict):
    """The counts of one version of a model, since it was added.

    Attributes:
        model: ``name/version``.
        answers: numbers of answers, by status.
        waiting: requests that wait for a worker.
        times: numbers of answers by the time that they took, in the buckets of ``TIME_BOUNDS_S``. The last
            number is of answers that took longer than all bounds.
        seconds: seconds that all answers took, together.
    """

    model: str
    answers: dict[str, int]
    waiting: int
    times: list[int]
    seconds: float


class DirectState(TypedDict):
    """The state of the direct address.

    Attributes:
        address: the address, as text.
        models: the counts of its models.
    """

    address: str
    models: list[ModelTraffic]


class Traffic:
    """Counts answers to requests for one model."""

    def __init__(self) -> None:
        self._answers: dict[int, int] = {}
        self._times = [0] * (len(TIME_BOUNDS_S) + 1)
        self._seconds = 0.0

    def note(self, status: int, seconds: float) -> None:
        """Count an answer.

        Args:
            status: the answer's HTTP status; of a streamed answer, that of its first part.
            seconds: from when the whole request had arrived until the answer was there.
        """
        self._answers[status] = self._answers.get(status, 0) + 1
        self._times[bisect_left(TIME_BOUNDS_S, seconds)] += 1
        self._seconds += seconds

    def describe(self, model: str, waiting: int) -> ModelTraffic:
        """The counts so far. Any thread.

        Args:
            model: the model's ``name/version``.
            waiting: the number of requests that wait for a worker.
        """
        return {
            "model": model,
            "answers": {str(status): count for status, count in sorted(self._answers.copy().items())},
            "waiting": waiting,
            "times": self._times.copy(),
            "seconds": self._seconds,
        }
