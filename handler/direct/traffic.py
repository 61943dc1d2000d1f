"""What the direct address has answered: how often and how fast, for each model.

The event loop's thread writes, and the host's reads: each value by itself, which Python's GIL keeps whole.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TypedDict

TIME_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ModelTraffic(TypedDict):
    """Of one version of a model, since it is here.

    Attributes:
        model: ``name/version``.
        answers: how many there were, by status.
        waiting: requests that wait for a worker.
        times: how many answers took how long, by ``TIME_BOUNDS_S``; the last ones took longer.
        seconds: that they took, together.
    """

    model: str
    answers: dict[str, int]
    waiting: int
    times: list[int]
    seconds: float


class DirectState(TypedDict):
    """The direct address.

    Attributes:
        address: where it is.
        models: what it has.
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
            status: of it; of a streamed one, of its first part.
            seconds: from when the request was whole until the answer was there.
        """
        self._answers[status] = self._answers.get(status, 0) + 1
        self._times[bisect_left(TIME_BOUNDS_S, seconds)] += 1
        self._seconds += seconds

    def describe(self, model: str, waiting: int) -> ModelTraffic:
        """What was counted."""
        return {
            "model": model,
            "answers": {str(status): count for status, count in sorted(self._answers.copy().items())},
            "waiting": waiting,
            "times": self._times.copy(),
            "seconds": self._seconds,
        }
