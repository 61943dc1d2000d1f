"""A connection to one worker: batches go out, and answers come back. For the event loop's thread alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import chain
from typing import cast

from interpool.handler.direct import messages
from interpool.handler.direct.job import Answer, Job, Refusal
from interpool.handler.direct.messages import Prediction, Reply, ReplyReader

_AT_ONCE = 1 << 16  # bytes that are sent in one piece

logger = logging.getLogger("interpool.direct")


class LoadFailed(Exception):
    """The worker's model could not be loaded; the message says why."""


def worker_died() -> Refusal:
    """The answer to requests whose worker has ended."""
    return Refusal(500, "InternalServerException", "Worker died.")


class WorkerConnection(asyncio.Protocol):
    """Speaks TorchServe's worker protocol.

    Args:
        patience_s: seconds that the worker may be silent while it has a batch; TorchServe's responseTimeout.
        on_idle: called when it has answered a batch.
        on_end: called once, when the connection has ended.
    """

    def __init__(
        self,
        patience_s: float,
        on_idle: Callable[[WorkerConnection], None],
        on_end: Callable[[WorkerConnection], None],
    ) -> None:
        self._patience_s = patience_s
        self._on_idle = on_idle
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._reader = ReplyReader()
        self._transport: asyncio.Transport | None = None
        self._loading: asyncio.Future[Reply] | None = None
        self._jobs: dict[bytes, Job] = {}
        self._deadline = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self.leaving = False  # it ends once it has answered

    async def load(self, command: bytes, timeout_s: float) -> None:
        """Have the worker load its model; raises LoadFailed."""
        assert self._transport is not None
        self._loading = self._loop.create_future()
        self._transport.write(command)
        try:
            reply = await asyncio.wait_for(self._loading, timeout_s)
        except TimeoutError:
            self.close()
            raise LoadFailed(f"it was not loaded in {timeout_s:g} s") from None
        finally:
            self._loading = None
        if reply.code != messages.SUCCESS:
            raise LoadFailed(reply.message.decode(errors="replace"))

    def send(self, jobs: list[Job]) -> None:
        """Send a batch; each of its jobs gets an answer, whatever happens."""
        assert self._transport is not None
        self._jobs = {job.request_id: job for job in jobs}
        parts = [messages.PREDICT, *chain.from_iterable(job.parts for job in jobs), messages.BATCH_END]
        if sum(map(len, parts)) <= _AT_ONCE:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)
        for job in jobs:
            job.parts = []
        self._deadline = self._loop.time() + self._patience_s
        if self._watch is None:
            self._watch = self._loop.call_at(self._deadline, self._look)

    def leave(self) -> None:
        """Take no further batch; the connection ends when the last one is answered."""
        self.leaving = True
        if not self._jobs:
            self.close()

    def close(self) -> None:
        """End the connection; its batch fails."""
        self.leaving = True
        if self._transport is not None:
            self._transport.abort()

    # ---- what the loop calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        for reply in self._reader.feed(data):
            if self._loading is not None:
                if not self._loading.done():
                    self._loading.set_result(reply)
            else:
                self._answer(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.leaving = True
        self._transport = None
        if self._watch is not None:
            self._watch.cancel()
        if self._loading is not None and not self._loading.done():
            self._loading.set_exception(LoadFailed("its worker ended; its log says why"))
        self._fail(worker_died())
        self._on_end(self)

    # ---- answers -------------------------------------------------------------------------------

    def _answer(self, reply: Reply) -> None:
        if reply.code != messages.SUCCESS:
            # TorchServe's own: what it calls too large an entity is a lack of memory.
            status = 507 if reply.code == 413 else reply.code
            text = reply.message.decode(errors="replace")
            self._fail(Refusal(status, "InternalServerException", text))
            self._rest()
            return
        goes_on = False
        for prediction in reply.predictions:
            job = self._jobs.get(prediction.request_id)
            if job is None:
                logger.error("a worker answered a request that it did not have")
                self.close()
                return
            more = _has_more(prediction)
            goes_on |= more
            job.deliver(
                Answer(prediction.status, prediction.content_type, prediction.headers, prediction.body, more)
            )
        if goes_on:
            self._deadline = self._loop.time() + self._patience_s
            return
        answered = {prediction.request_id for prediction in reply.predictions}
        for request_id in self._jobs.keys() - answered:
            self._jobs[request_id].deliver(worker_died())
        self._jobs = {}
        self._rest()

    def _fail(self, refusal: Refusal) -> None:
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            job.deliver(refusal)

    def _rest(self) -> None:
        if self.leaving:
            self.close()
        else:
            self._on_idle(self)

    def _look(self) -> None:
        """End a worker that has been silent for too long; it is looked at again as long as it has batches."""
        self._watch = None
        if not self._jobs:
            return
        if self._loop.time() < self._deadline:
            self._watch = self._loop.call_at(self._deadline, self._look)
            return
        logger.error("a worker did not answer in %g s, and is started anew", self._patience_s)
        self.close()


def _has_more(prediction: Prediction) -> bool:
    return any(name == messages.STREAM_NEXT and value == b"true" for name, value in prediction.headers)
