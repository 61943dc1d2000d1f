"""A queue of the direct address without workers: the test says what each request gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpool.handler.direct.job import Answer, Job, Refusal
from interpool.handler.direct.models import Models, ModelVersion
from interpool.handler.direct.queue import ModelQueue, QueueSettings

if TYPE_CHECKING:
    from interpool.native._native import Request


class AnsweringQueue(ModelQueue):
    """Stands for the queue of a model that has one worker, and answers each request at once.

    Args:
        answers: what each request gets: its answer, or the parts of a stream.

    Attributes:
        requests: the requests so far, as a worker gets them.
    """

    def __init__(self, *answers: Answer | Refusal) -> None:
        self.settings = QueueSettings()
        self.workers = set()
        self.wanted = 1
        self.is_stalled = False
        self.requests: list[Request] = []
        self._answers = answers

    def put(self, job: Job) -> bool:
        self.requests.append(job.take_request())
        for each in self._answers:
            job.deliver(each)
        return True


def models_with(queue: ModelQueue) -> Models:
    """Models of which there is one, ``m``, with this queue."""
    models = Models()
    models.add(ModelVersion("m", "1.0", queue))
    return models
