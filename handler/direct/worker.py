"""A connection to one worker: batches go out, and answers come back. For the event loop's thread alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from interpool.handler.direct.channels import Channels
from interpool.handler.direct.job import Answer, Job, Refusal

if TYPE_CHECKING:
    from interpool.native._native import Reply

_SUCCESS = 200
_STREAM_NEXT = (b"ts_stream_next", b"true")  # a header of all parts of a stream but the last

logger = logging.getLogger("interpool.direct")


class LoadFailed(Exception):
    """The worker's model could not be loaded; the message says why."""


def _ended_early() -> LoadFailed:
    return LoadFailed("its worker ended; its log says why")


def worker_died() -> Refusal:
    """The answer to requests whose worker has ended."""
    return Refusal(500, "InternalServerException", "Worker died.")


def not_started(name: str) -> Refusal:
    """The answer to requests for a model whose workers have ended, and could not be started anew."""
    said = f'Model "{name}" has no worker: none could be started anew, and the server\'s log says why'
    return Refusal(503, "ServiceUnavailableException", said)


class WorkerConnection:
    """Sends batches to one worker, and gives the answers to their jobs.

    Args:
        channels: the channels of the event loop.
        load_command: TorchServe's load command, which the worker gets first.
        patience_s: seconds that the worker may be silent while it has a batch; TorchServe's responseTimeout.
        on_idle: called with the connection when the worker has answered a batch.
        on_end: called once with the connection, when it has ended.

    Attributes:
        number: the number of its channel.
        leaving: whether it ends once the worker has answered its batch.
    """

    def __init__(
        self,
        channels: Channels,
        load_command: bytes,
        patience_s: float,
        on_idle: Callable[[WorkerConnection], None],
        on_end: Callable[[WorkerConnection], None],
    ) -> None:
        self._patience_s = patience_s
        self._on_idle = on_idle
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loading: asyncio.Future[Reply] | None = self._loop.create_future()
        self._jobs: dict[bytes, Job] = {}
        self._deadline = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._channel = channels.open(self.hear, load_command)
        self.number = self._channel.number
        self.leaving = False

    @property
    def owes_answers(self) -> bool:
        """Whether a request of its batch is not answered yet."""
        return not all(job.is_answered for job in self._jobs.values())

    async def loaded(self, timeout_s: float) -> None:
        """Wait until the worker has loaded its model.

        Args:
            timeout_s: seconds that this may take.

        Raises:
            LoadFailed: the load has failed, was too slow, or the worker has ended.
        """
        assert self._loading is not None
        try:
            code, message, _ = await asyncio.wait_for(self._loading, timeout_s)
        except TimeoutError:
            self.close()
            raise LoadFailed(
                f"it was not loaded in {timeout_s:g} s, in which it may have waited for other models' loads. "
                "Give it more by `startupTimeout: SECONDS` in its archive's configuration file"
            ) from None
        finally:
            self._loading = None
        if code != _SUCCESS:
            raise LoadFailed(message.decode(errors="replace"))
        if self.leaving:  # it has ended since that answer
            raise _ended_early()

    def send(self, jobs: list[Job]) -> None:
        """Send a batch; each of its jobs gets an answer in every case."""
        self._jobs = {job.request_id: job for job in jobs}
        refusal = None
        try:
            self._channel.predict([job.take_request() for job in jobs])
        except ValueError as error:  # a part of 2 GiB
            refusal = Refusal(413, "RequestEntityTooLargeException", str(error))
        except MemoryError:
            said = "Memory was lacking for the request. Try again later, or send less."
            refusal = Refusal(507, "InternalServerException", said)
        if refusal is not None:  # nothing was sent
            self._fail(refusal)
            self._loop.call_soon(self._rest)
            return
        self._deadline = self._loop.time() + self._patience_s
        if self._watch is None:
            self._watch = self._loop.call_at(self._deadline, self._look)

    def leave(self) -> None:
        """Take no further batch; the connection ends when the current one is answered."""
        self.leaving = True
        if not self._jobs:
            self.close()

    def close(self) -> None:
        """End the connection; its batch fails."""
        self.leaving = True
        self._channel.close()
        self._fail(worker_died())  # at once: the loop may not handle the channel's end any more

    # ---- what its channel brings -------------------------------------------------------------

    def hear(self, reply: Reply | None) -> None:
        """Take a reply of the worker; None, once: the channel has ended."""
        if reply is None:
            self._ended()
        elif self.leaving and not self._jobs:
            pass  # it was on its way when the connection was closed
        elif self._loading is None:
            self._answer(reply)
        elif not self._loading.done():
            self._loading.set_result(reply)

    def _ended(self) -> None:
        self.leaving = True
        if self._watch is not None:
            self._watch.cancel()
        if self._loading is not None and not self._loading.done():
            self._loading.set_exception(_ended_early())
            self._loading.exception()  # else the loop reports it if the host has refused the worker
        self._fail(worker_died())
        self._on_end(self)

    # ---- answers -------------------------------------------------------------------------------

    def _answer(self, reply: Reply) -> None:
        code, message, predictions = reply
        if code != _SUCCESS:
            # As in TorchServe: a worker reports a lack of memory by the code of too large an entity.
            status = 507 if code == 413 else code
            self._fail(Refusal(status, "InternalServerException", message.decode(errors="replace")))
            self._rest()
            return
        jobs = self._jobs
        answers: list[tuple[Job, Answer | Refusal]] = []
        goes_on = False
        for request_id, content_type, status, headers, body in predictions:
            job = jobs.get(request_id)
            if job is None:
                logger.error("a worker answered a request that it did not have")
                self.close()
                return
            more = _STREAM_NEXT in headers
            goes_on |= more
            answers.append((job, Answer(status, content_type, headers, body, more)))
        if goes_on:
            self._deadline = self._loop.time() + self._patience_s
        else:
            if len(predictions) != len(jobs):
                answered = {prediction[0] for prediction in predictions}
                answers += [(jobs[each], worker_died()) for each in jobs.keys() - answered]
            self._jobs = {}
            self._rest()  # first, so that the worker computes while its answers are written
        for job, answer in answers:
            job.deliver(answer)

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
        """End a worker that has been silent for too long; look again as long as it has batches."""
        self._watch = None
        if not self._jobs:
            return
        if self._loop.time() < self._deadline:
            self._watch = self._loop.call_at(self._deadline, self._look)
            return
        logger.error("a worker did not answer in %g s, and is started anew", self._patience_s)
        self.close()
