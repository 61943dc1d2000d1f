"""The requests of one model that wait for its workers. For the event loop's thread alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from interpool.handler.direct.channels import Channels
from interpool.handler.direct.job import Job, Refusal
from interpool.handler.direct.worker import WorkerConnection


@dataclass(frozen=True)
class QueueSettings:
    """The settings of a model's registration, as TorchServe has them.

    Attributes:
        batch_size: the most requests in a batch.
        batch_delay_s: seconds that a request waits for others of its batch.
        queue_size: the most requests that wait.
        response_timeout_s: seconds that a worker may take for a batch.
        client_timeout_s: seconds after which a request that is not answered is refused; 0: never.
    """

    batch_size: int = 1
    batch_delay_s: float = 0.1
    queue_size: int = 100
    response_timeout_s: float = 120.0
    client_timeout_s: float = 0.0


class ModelQueue:
    """Collects requests into batches, and gives these to idle workers.

    Args:
        settings: the settings of the model's registration.

    Attributes:
        settings: as above; they may be replaced at any time.
        workers: the workers that have the model, idle or busy.
        wanted: the number of workers that it should have; if it is 0, requests are refused.
        is_stalled: whether no worker has the model and none could be started anew; requests are refused then.
    """

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.workers: set[WorkerConnection] = set()
        self.wanted = 0
        self.is_stalled = False
        self._idle: list[WorkerConnection] = []
        self._jobs: deque[Job] = deque()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Event | None = None  # made by ``drain``

    def __len__(self) -> int:
        """The number of requests that wait."""
        return len(self._jobs)

    @property
    def takes_requests(self) -> bool:
        """Whether a request gets a worker, now or later."""
        return self.wanted > 0 and not self.is_stalled

    @property
    def _is_busy(self) -> bool:
        """Whether a request is not answered yet."""
        return bool(self._jobs) or any(worker.owes_answers for worker in self.workers)

    async def drain(self) -> None:
        """Wait until all requests are answered.

        Each worker answers its batch, or is ended. Without a worker, this waits as long as a batch may take.
        """
        self._drained = drained = asyncio.Event()
        self._note_drained()
        while not drained.is_set():
            try:
                await asyncio.wait_for(drained.wait(), self.settings.response_timeout_s)
            except TimeoutError:
                if not self.workers:
                    return

    def put(self, job: Job) -> bool:
        """Take a request; False if the model has no workers to come, or the queue is full.

        Raises:
            RuntimeError: another event loop runs than the one that has the workers, and no answer would come.
        """
        if not self.takes_requests or (not self._idle and len(self._jobs) >= self.settings.queue_size):
            return False
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("the models were opened in another event loop than the one that asks them")
        self._jobs.append(job)
        if self.settings.client_timeout_s:
            job.expire_after(self.settings.client_timeout_s, self.forget)
        if self._idle:
            self._dispatch()
        return True

    def connection(
        self, channels: Channels, load_command: bytes, on_end: Callable[[WorkerConnection], None]
    ) -> WorkerConnection:
        """Open a connection to a worker; the caller adds it by ``add`` once the worker has the model.

        Args:
            channels: the channels of the event loop.
            load_command: TorchServe's load command, which the worker gets first.
            on_end: called once with the connection, when it has ended.
        """

        def ended(worker: WorkerConnection) -> None:
            self.workers.discard(worker)
            if worker in self._idle:
                self._idle.remove(worker)
            self._note_drained()
            on_end(worker)

        return WorkerConnection(
            channels, load_command, self.settings.response_timeout_s, self._take_back, ended
        )

    def add(self, worker: WorkerConnection) -> None:
        """Give batches to this worker from now on."""
        self.is_stalled = False
        self.workers.add(worker)
        self._take_back(worker)

    def stall(self, refusal: Refusal) -> None:
        """Refuse requests until a worker is added, waiting ones by this refusal; not if there is one."""
        if not self.workers:
            self.is_stalled = True
            self.refuse_waiting(refusal)

    def refuse_waiting(self, refusal: Refusal) -> None:
        """Answer all requests that wait by this refusal, as the model is gone."""
        jobs, self._jobs = self._jobs, deque()
        for job in jobs:
            job.deliver(refusal)

    def leave(self, job: Job) -> None:
        """Refuse a request whose client has left, if no worker has it yet."""
        if job.waits:
            job.deliver(Refusal(499, "ClientClosedRequestException", "The client has left."))
            self.forget(job)

    def forget(self, job: Job) -> None:
        """Drop a request that needs no answer any more. If a worker has it, that goes on."""
        job.end()
        with contextlib.suppress(ValueError):
            self._jobs.remove(job)
        self._note_drained()

    def _take_back(self, worker: WorkerConnection) -> None:
        self._idle.append(worker)
        self._dispatch()
        self._note_drained()

    def _dispatch(self) -> None:
        jobs, size = self._jobs, self.settings.batch_size
        while jobs and self._idle:
            if len(jobs) < size:
                left = jobs[0].since + self.settings.batch_delay_s - self._loop.time()
                if left > 0:
                    if self._timer is None:
                        self._timer = self._loop.call_later(left, self._on_time)
                    return
            worker = self._idle.pop()
            if worker.leaving:
                continue
            worker.send([jobs.popleft() for _ in range(min(size, len(jobs)))])

    def _note_drained(self) -> None:
        if self._drained is not None and not self._is_busy:
            self._drained.set()

    def _on_time(self) -> None:
        self._timer = None
        self._dispatch()
