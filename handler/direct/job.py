"""One request on its way to a worker and back. For the event loop's thread alone."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from interpool.native._native import Request

_MOST_UNREAD_BYTES = 256 << 20  # of a stream, that its client has not read

logger = logging.getLogger("interpool.direct")


class Parameter(NamedTuple):
    """A part of a request: a form's field, or the whole body."""

    name: bytes
    content_type: bytes
    value: bytes


class Answer(NamedTuple):
    """A client's answer, or a part of a streamed one; ``more`` says whether further parts follow."""

    status: int
    content_type: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    more: bool = False


class Refusal(Exception):
    """A request is answered by an error in TorchServe's form.

    Attributes:
        status: the answer's HTTP status.
        kind: the name that TorchServe gives the error.
        message: the text for the client.
    """

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message


class Job:
    """A request that waits for a worker, or for its answer.

    Args:
        request_id: its id in a batch.
        headers: the request's headers in Latin-1, as HTTP has them, or as text; of several with one name, the
            last one.
        parameters: the request's parameters.
        since: when the whole request had arrived, by the loop's clock, in seconds.

    Attributes:
        is_answered: whether it has its whole answer, or nothing awaits one any more.
    """

    __slots__ = (
        "_arrived",
        "_on_answer",
        "_request",
        "_timer",
        "_unread",
        "_waiter",
        "is_answered",
        "request_id",
        "since",
    )

    def __init__(
        self,
        request_id: bytes,
        headers: Mapping[bytes, bytes | str],
        parameters: list[Parameter],
        since: float,
    ) -> None:
        self.request_id = request_id
        self._request: Request | None = (request_id, headers, parameters)
        self.since = since
        self._arrived: deque[Answer | Refusal] = deque()
        self._unread = 0  # bytes of the parts of a stream that have arrived
        self._waiter: asyncio.Future[None] | None = None
        self._on_answer: Callable[[Answer | Refusal], None] | None = None
        self.is_answered = False
        self._timer: asyncio.TimerHandle | None = None

    def expire_after(self, timeout_s: float, on_expired: Callable[[Job], None]) -> None:
        """Refuse the request if it has no whole answer in time.

        Args:
            timeout_s: seconds from now.
            on_expired: called with the job after that refusal.
        """
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout_s, self._expire, timeout_s, on_expired)

    def _expire(self, timeout_s: float, on_expired: Callable[[Job], None]) -> None:
        said = f"The request was not answered in {timeout_s:g} s, the client timeout of its model."
        self.deliver(Refusal(408, "RequestTimeoutException", said))
        on_expired(self)

    @property
    def waits(self) -> bool:
        """Whether no worker has the request yet, and it is not answered."""
        return self._request is not None and not self.is_answered

    def take_request(self) -> Request:
        """The request for a worker. Call it once: the job then forgets the request."""
        assert self._request is not None
        request, self._request = self._request, None
        return request

    def deliver(self, answer: Answer | Refusal) -> None:
        """Give the job its answer, or the next part of it. After the last part, all others are dropped.

        If too much of a stream waits for its client, the stream ends. A worker never waits for a client.
        """
        if self.is_answered:
            return
        if isinstance(answer, Answer) and answer.more:
            self._unread += len(answer.body)
            if self._unread > _MOST_UNREAD_BYTES:
                logger.warning("a stream was ended, as its client had not read %d bytes of it", self._unread)
                self._arrived.clear()
                answer = Refusal(503, "ServiceUnavailableException", "The client reads too slowly.")
        if isinstance(answer, Refusal) or not answer.more:
            self.end()
        self._arrived.append(answer)
        if self._on_answer is not None:
            on_answer, self._on_answer = self._on_answer, None
            on_answer(answer)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self) -> None:
        """Drop all answers that still come."""
        self.is_answered = True
        if self._timer is not None:
            self._timer.cancel()

    def call_back(self, on_answer: Callable[[Answer | Refusal], None]) -> None:
        """Have a function called when the answer, or its first part, is there.

        Args:
            on_answer: gets it, once; ``answer`` returns it, too. It must not raise.
        """
        self._on_answer = on_answer

    async def answer(self) -> Answer:
        """Wait for the answer, or for its next part.

        Raises:
            Refusal: the request is answered by an error.
        """
        if not self._arrived:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None
        arrived = self._arrived.popleft()
        if isinstance(arrived, Refusal):
            raise arrived
        if arrived.more:
            self._unread -= len(arrived.body)
        return arrived
