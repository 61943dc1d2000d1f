"""The ASGI application: TorchServe's inference API for models of a pool.

It knows nothing of processes, ports or command lines. The program that serves it gives it the models.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import getrandbits
from typing import TYPE_CHECKING
from uuid import uuid4

from interpool.handler.direct.access_lines import AccessLine
from interpool.handler.direct.descriptions import api_description, metadata, model_api, server_metadata
from interpool.handler.direct.forms import parameters_of, query_parameters
from interpool.handler.direct.job import Answer, Job, Parameter, Refusal
from interpool.handler.direct.models import Models, ModelVersion
from interpool.handler.direct.paths import Asked, Wish, not_found, understand
from interpool.handler.direct.replies import (
    Headers,
    Receive,
    Scope,
    Send,
    error_answer,
    framed,
    head_of,
    json_answer,
    send_answer,
    send_part,
)
from interpool.handler.direct.traffic import Traffic
from interpool.handler.direct.worker import not_started
from interpool.native.torchserve import MOST_REQUEST_BYTES

if TYPE_CHECKING:
    from interpool.handler.direct.exchange import Exchange
    from interpool.handler.direct.passing_on import TorchServeClient

# Requests' ids are UUIDs, as in TorchServe: a random beginning for the process, and a count.
_ID_BEGINS, _ID_COUNTS = str(uuid4())[:24].encode(), count(getrandbits(44))
_TOO_LARGE = 413
_MOST_DIGITS = 19  # of a body's length


logger = logging.getLogger("interpool.direct")


class ClientGone(Exception):
    """The client has left before its request was whole."""


@dataclass(frozen=True)
class Limits:
    """The limits for a client's requests.

    Attributes:
        request_bytes: the most bytes that a body may have; TorchServe's max_request_size.
        body_s: seconds within which the whole body must arrive; None: the HTTP server below enforces that.
        coming_bytes: the most bytes that all bodies which have not arrived in full may have together, if a
            single one may not have more.
    """

    request_bytes: int = MOST_REQUEST_BYTES
    body_s: float | None = 60.0
    coming_bytes: int = 1 << 30


Lifespan = Callable[[], AbstractAsyncContextManager[object]]


class Application:
    """Answers HTTP requests.

    Args:
        models: its models; they may change while it serves.
        limits: the limits for requests; None: the defaults.
        headers: headers of all answers, such as those that TorchServe's CORS settings ask for; None: none.
        guard: raises Refusal for the headers of a request that must not be answered; None: all are answered.
        elsewhere: answers requests for other models and paths; None: they are answered with errors.
        lifespan: returns a context that is open while the application is served; None: there is none.
        has_access_lines: whether each request is logged.

    Attributes:
        lifespan: as above. The ASGI server opens it, or the application into which this one is mounted.
    """

    def __init__(
        self,
        models: Models,
        limits: Limits | None = None,
        *,
        headers: Headers | None = None,
        guard: Callable[[dict[bytes, bytes]], None] | None = None,
        elsewhere: TorchServeClient | None = None,
        lifespan: Lifespan | None = None,
        has_access_lines: bool = False,
    ) -> None:
        self._has_access_lines = has_access_lines
        self._models = models
        self._limits = limits or Limits()
        self._headers: Headers = headers or []
        self._guard = guard
        self._elsewhere = elsewhere
        self._coming = 0  # bytes of bodies that are not whole
        self.lifespan = lifespan or contextlib.nullcontext

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        if scope["type"] == "http":
            await _logged(self._line(scope), partial(self._request, scope, receive), send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    # ---- requests ------------------------------------------------------------------------------

    def take(self, exchange: Exchange) -> bool:
        """Take a prediction whose body is whole; a worker's answer is written as soon as it is there.

        This does what calling the application does, without a task and without ASGI's messages. They take
        longer than the rest of it.

        Returns:
            Whether the request will be answered. If not, call the application with it.
        """
        scope = exchange.scope
        headers = dict(scope["headers"])
        line = self._line(scope)
        try:
            asked = self._asked(scope, headers)
            if asked is None or asked.wish is not Wish.PREDICT or scope["method"] in ("HEAD", "OPTIONS"):
                return False
            if exchange.held_bytes > self._limits.request_bytes:
                return False
            model, job = self._job(asked, headers, scope, exchange.peek_body(), _new_id())
        except Refusal:
            return False
        job.call_back(partial(self._write, exchange, job, model, headers, line))
        if not model.queue.put(job):
            return False
        if job.waits:
            exchange.on_left = partial(model.queue.leave, job)
        exchange.take_body()
        return True

    def _write(
        self,
        exchange: Exchange,
        job: Job,
        model: ModelVersion,
        headers: dict[bytes, bytes],
        line: AccessLine | None,
        arrived: Answer | Refusal,
    ) -> None:
        """Write an answer. If it is a stream, or its client is slow to read, a task does that."""
        try:
            if (isinstance(arrived, Answer) and arrived.more) or not exchange.takes_whole:
                exchange.run(partial(self._go_on, job, model, headers, line))
                return
            answer, head = self._reply(arrived, job, model.traffic, exchange.scope, headers)
            exchange.write_whole(answer.status, head, answer.body)
            if line is not None:
                line.status = answer.status
                line.write()
        except Exception:  # other requests of the batch must still be answered
            logger.exception("an answer could not be written")
            exchange.transport.close()

    async def _go_on(
        self,
        job: Job,
        model: ModelVersion,
        headers: dict[bytes, bytes],
        line: AccessLine | None,
        scope: Scope,
        _receive: Receive,
        send: Send,
    ) -> None:
        """Send an answer that has begun to arrive, as an ASGI application."""
        await _logged(line, partial(self._answer, job, model, scope, headers), send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = _new_id()
        # Of several headers with one name, the last counts, as for TorchServe's handlers.
        headers = dict(scope["headers"])
        try:
            asked = self._asked(scope, headers)
            if asked is None:
                assert self._elsewhere is not None
                self._check_length(headers)
                ends = self._is_last(scope, headers)
                await self._elsewhere.pass_on(scope, receive, send, ends=ends)
                return
            if asked.wish is Wish.PREDICT:
                await self._predict(asked, headers, scope, receive, send, request_id)
                return
            answer = self._say(asked)
        except ClientGone:
            return
        except Refusal as refusal:
            if refusal.status == _TOO_LARGE:  # TorchServe answers this without a body
                await send_answer(send, Answer(413, b"", (), b""), [(b"connection", b"close")])
                return
            answer = error_answer(refusal)
        await send_answer(send, answer, self._head(answer, request_id, scope, headers))

    def _line(self, scope: Scope) -> AccessLine | None:
        """The access line of a request; None if requests have none."""
        return AccessLine(scope) if self._has_access_lines else None

    def _asked(self, scope: Scope, headers: dict[bytes, bytes]) -> Asked | None:
        """The request's path, parsed; None if another server answers it. Raises Refusal."""
        path = scope["path"]
        if root := scope.get("root_path"):
            path = _below(path, root.rstrip("/"))
        asked = understand(path, scope.get("raw_path") or b"", scope["method"])
        if self._guard is not None and asked.wish is not Wish.DESCRIPTION:
            self._guard(headers)
        if self._elsewhere is not None and not self._has(asked, scope["query_string"]):
            return None
        return asked

    async def _answer(
        self, job: Job, model: ModelVersion, scope: Scope, headers: dict[bytes, bytes], send: Send
    ) -> None:
        """Send an answer, or the parts of a stream, as they come."""
        try:
            await self._send_all(job, model.traffic, scope, headers, send)
        except BaseException:  # the server ends, or has ended the request
            model.queue.forget(job)
            raise

    async def _send_all(
        self, job: Job, traffic: Traffic, scope: Scope, headers: dict[bytes, bytes], send: Send
    ) -> None:
        arrived: Answer | Refusal
        try:
            arrived = await job.answer()
            if arrived.more and scope.get("http_version") == "1.0":  # which has no chunks
                arrived = await _joined(job, arrived)
        except Refusal as refusal:
            arrived = refusal
        answer, head = self._reply(arrived, job, traffic, scope, headers)
        if not answer.more:
            await send_answer(send, answer, head)
            return
        await send_part(send, answer, head)
        while answer.more:
            try:
                answer = await job.answer()
            except Refusal:  # its answer has begun, so the server ends the connection
                return
            await send_part(send, answer, None)

    def _reply(
        self,
        arrived: Answer | Refusal,
        job: Job,
        traffic: Traffic,
        scope: Scope,
        headers: dict[bytes, bytes],
    ) -> tuple[Answer, Headers]:
        """The answer that a client gets, or its first part, and its headers. It is counted."""
        answer = error_answer(arrived) if isinstance(arrived, Refusal) else arrived
        if answer.status != 200:
            answer = framed(answer)
            if not answer.more:
                job.end()
        traffic.note(answer.status, self._now() - job.since)
        return answer, self._head(answer, job.request_id, scope, headers)

    def _has(self, asked: Asked, query: bytes) -> bool:
        """Whether this address answers a request, if ``elsewhere`` answers all others."""
        if asked.wish in (Wish.PREDICT, Wish.READY, Wish.METADATA):
            name = asked.model or _model_in(query_parameters(query))
            with contextlib.suppress(Refusal):
                return self._models.find(name, asked.version).queue.takes_requests
            return False
        return asked.wish is Wish.SERVER

    async def _predict(
        self,
        asked: Asked,
        headers: dict[bytes, bytes],
        scope: Scope,
        receive: Receive,
        send: Send,
        request_id: bytes,
    ) -> None:
        """Have a worker answer; raises Refusal if none does."""
        body = await self._body(headers, receive)
        model, job = self._job(asked, headers, scope, body, request_id)
        if scope["method"] == "OPTIONS":
            answer = json_answer(model_api(model))
            await send_answer(send, answer, self._head(answer, request_id, scope, headers))
            return
        if not model.queue.put(job):
            model.traffic.note(503, 0.0)
            raise not_started(model.name) if model.queue.is_stalled else _no_worker(model.name, asked.version)
        leaving = asyncio.create_task(_leave(job, model, receive)) if job.waits else None
        try:
            await self._answer(job, model, scope, headers, send)
        finally:
            if leaving is not None:
                leaving.cancel()

    def _job(
        self, asked: Asked, headers: dict[bytes, bytes], scope: Scope, body: bytes, request_id: bytes
    ) -> tuple[ModelVersion, Job]:
        """The model that a prediction is for, and its job for a worker. Raises Refusal."""
        parameters = query_parameters(scope["query_string"]) if asked.takes_query else []
        parameters += parameters_of(headers.get(b"content-type", b""), body)
        name = asked.model or _model_in(parameters)
        if not name:
            raise Refusal(400, "BadRequestException", "Parameter model_name is required.")
        model = self._find(name, asked.version)
        received = {**headers, **asked.headers} if asked.headers else headers
        return model, Job(request_id, received, parameters, self._now())

    def _find(self, name: str, version: str | None) -> ModelVersion:
        """The model that answers a request; raises Refusal if there is none."""
        try:
            return self._models.find(name, version)
        except Refusal:
            if self._models.is_complete or self._elsewhere is not None:
                raise
            raise _not_open(name) from None

    def _check_length(self, headers: dict[bytes, bytes]) -> None:
        """Raise Refusal if a body's declared length is none, or larger than a body may be."""
        length = headers.get(b"content-length")
        if length is not None:
            if not length.isdigit():
                raise Refusal(400, "BadRequestException", "Invalid HTTP message.")
            if len(length) > _MOST_DIGITS or int(length) > self._limits.request_bytes:
                raise Refusal(_TOO_LARGE, "", "")

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        self._check_length(headers)
        most = self._limits.request_bytes
        if self._limits.body_s is None:
            return await self._whole(receive, most)
        try:
            return await asyncio.wait_for(self._whole(receive, most), self._limits.body_s)
        except TimeoutError:
            said = "The request's body did not come in time."
            raise Refusal(408, "RequestTimeoutException", said) from None

    async def _whole(self, receive: Receive, most: int) -> bytes:
        """A request's body.

        Args:
            receive: ASGI's.
            most: bytes that it may have.

        Raises:
            Refusal: it has more, or all bodies that are coming have too many.
            ClientGone: the client has left.
        """
        chunks, size = [], 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk = message.get("body", b"")
                size += len(chunk)
                self._coming += len(chunk)
                if size > most:
                    raise Refusal(_TOO_LARGE, "", "")
                chunks.append(chunk)
                if not message.get("more_body"):
                    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
                if self._coming > max(self._limits.coming_bytes, most):
                    said = "The server has too many unfinished requests. Try again later."
                    raise Refusal(503, "ServiceUnavailableException", said)
        finally:
            self._coming -= size
            chunks.clear()  # a refusal's traceback has this frame for as long as there is no collection

    def _say(self, asked: Asked) -> Answer:
        """The answer to a request that needs no worker; raises Refusal."""
        if asked.wish is Wish.PING:
            healthy = self._is_ready()
            return json_answer({"status": "Healthy" if healthy else "Unhealthy"}, 200 if healthy else 500)
        if asked.wish is Wish.DESCRIPTION:
            return json_answer(api_description(self._models))
        if asked.wish is Wish.SERVER:
            return self._server_says(asked.rest)
        if asked.wish in (Wish.READY, Wish.METADATA):
            model = self._find(asked.model, asked.version)
            if asked.wish is Wish.METADATA:
                return json_answer(metadata(model, self._models))
            ready = model.is_healthy and not self._models.is_draining
            return json_answer({"name": model.name, "ready": ready}, 200 if ready else 503)
        raise not_found()

    def _server_says(self, rest: str) -> Answer:
        """The answer to a request about the whole server, by the Open Inference Protocol."""
        if rest == "health/live":
            live = not self._models.has_failed
            return json_answer({"live": live}, 200 if live else 503)
        if rest == "health/ready":
            ready = self._is_ready()
            return json_answer({"ready": ready}, 200 if ready else 503)
        return json_answer(server_metadata())

    def _is_ready(self) -> bool:
        return self._models.is_ready

    def _head(self, answer: Answer, request_id: bytes, scope: Scope, headers: dict[bytes, bytes]) -> Headers:
        """The headers of the answer to a request with this scope and these headers."""
        return head_of(answer, request_id, self._headers, ends=self._is_last(scope, headers))

    def _is_last(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        """Whether the connection of a request with this scope and these headers ends with its answer."""
        is_asked = b"close" in headers.get(b"connection", b"").lower()
        return is_asked or scope.get("http_version") == "1.0" or self._models.is_draining

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # ---- life ----------------------------------------------------------------------------------

    async def _live(self, receive: Receive, send: Send) -> None:
        """Open the application's context when it is started, and close it at the end."""
        await receive()
        async with contextlib.AsyncExitStack() as opened:
            try:
                await opened.enter_async_context(self.lifespan())
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


async def _logged(line: AccessLine | None, answer: Callable[[Send], Awaitable[None]], send: Send) -> None:
    """Have a request answered, and then log its line, if it has one."""
    if line is None:
        await answer(send)
        return
    try:
        await answer(line.sender(send))
    finally:
        line.write()


async def _leave(job: Job, model: ModelVersion, receive: Receive) -> None:
    """Drop a request that waits in line when its client leaves: nothing else follows its body."""
    if (await receive())["type"] == "http.disconnect":
        model.queue.leave(job)


async def _joined(job: Job, first: Answer) -> Answer:
    """The whole answer of a job whose answer is a stream; raises Refusal."""
    parts, answer = [first.body], first
    while answer.more:
        answer = await job.answer()
        parts.append(answer.body)
    return first._replace(body=b"".join(parts), more=False)


def _below(path: str, root: str) -> str:
    """The path below the one that the application is mounted at. Some servers leave that out of the path."""
    return path[len(root) :] if f"{path}/".startswith(f"{root}/") else path


def _new_id() -> bytes:
    """A UUID for a request, as in TorchServe."""
    return b"%b%012x" % (_ID_BEGINS, next(_ID_COUNTS))


def _model_in(parameters: list[Parameter]) -> str:
    found = (each.value for each in parameters if each.name == b"model_name")
    return next(found, b"").decode(errors="replace")


def _not_open(name: str) -> Refusal:
    return Refusal(
        503,
        "ServiceUnavailableException",
        f"Model not found: {name}. No models are served yet, or none any more. An application that is "
        "mounted into another one has to be opened there: async with app.lifespan()",
    )


def _no_worker(name: str, version: str | None) -> Refusal:
    which = name if version is None else f'{name}" Version {version}'
    return Refusal(
        503,
        "ServiceUnavailableException",
        f'Model "{which}" has no worker to serve inference request. Please use scale workers API to add '
        "workers. If this is a sequence inference, please check if it is closed, or expired; or exceeds "
        "maxSequenceJobQueueSize",
    )
