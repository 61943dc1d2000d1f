"""Counts the answers of a replica of Ray Serve, as metrics that Ray's own agent exports.

They have the names of ``interpool exporter``, to which Ray adds the prefix ``ray_``. Ray Serve adds its own
labels ``application``, ``deployment`` and ``replica``.
"""

from __future__ import annotations

from interpool.handler.direct.models import Models
from interpool.handler.direct.traffic import TIME_BOUNDS_S, Traffic

_MODEL = ("model", "version")


class RayMetrics:
    """Metrics of the models of this process, which must be a replica.

    Attributes:
        answers: counts requests by model, version and status.
        seconds: the histogram of the times that they took, by model and version.
    """

    def __init__(self) -> None:
        from ray.serve import metrics

        self.answers = metrics.Counter(
            "interpool_direct_requests", "Requests that were answered, by status.", (*_MODEL, "status")
        )
        self.seconds = metrics.Histogram(
            "interpool_direct_request_seconds",
            "Seconds from when a request was whole to its answer.",
            list(TIME_BOUNDS_S),
            _MODEL,
        )
        self._waiting = metrics.Gauge(
            "interpool_direct_requests_waiting", "Requests that wait for a worker.", _MODEL
        )
        self._known: set[tuple[str, str]] = set()

    def traffic(self, model: str, version: str) -> Traffic:
        """The counter of a model's answers, for Ray and for the pool's host.

        Args:
            model: the model's name.
            version: its version.
        """
        return _Counted(self, dict(zip(_MODEL, (model, version), strict=True)))

    def show_waiting(self, models: Models) -> None:
        """Have Ray export how many requests wait now, and 0 for models that are gone.

        Args:
            models: the models that are served now.
        """
        waiting = {(one.name, one.version): len(one.queue) for one in models}
        for key in self._known | waiting.keys():
            self._waiting.set(waiting.get(key, 0), dict(zip(_MODEL, key, strict=True)))
        self._known = set(waiting)


class _Counted(Traffic):
    def __init__(self, metrics: RayMetrics, labels: dict[str, str]) -> None:
        super().__init__()
        self._metrics = metrics
        self._labels = labels

    def note(self, status: int, seconds: float) -> None:
        super().note(status, seconds)
        self._metrics.answers.inc(1, {**self._labels, "status": str(status)})
        self._metrics.seconds.observe(seconds, self._labels)
