"""The HTTP server below the application: uvicorn, with httptools and uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import resource
import socket
from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Any, NoReturn
from urllib.parse import unquote_to_bytes

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from interpool.handler.direct.application import Application
from interpool.handler.direct.exchange import Exchange
from interpool.handler.direct.job import Refusal
from interpool.handler.direct.paths import as_text
from interpool.handler.direct.replies import error_answer

REQUEST_S = 60.0  # seconds within which a whole request must arrive; and that a client may read nothing
LOOK_S = 10.0
_MOST_HELD_BYTES = 1 << 14  # of a body that is whole before the application gets the request
_MOST_DIGITS = 5  # of that number
_MOST_KEPT = 200  # bytes of a request's target
MOST_HEAD_BYTES = 1 << 16  # of a head, or of trailers
_MOST_HEADERS = 256  # of a request
_MOST_IN_LINE = 1024  # requests that a connection sends before it reads the answers
_LARGE_HEAD = "The request's URL or headers are too large."
KEEP_ALIVE_S = 75.0  # seconds without a request after an answer
_BACKLOG = 4096
_ACCEPTED_AT_ONCE = 64  # connections, before the loop handles requests again
HANDSHAKE_S = 10.0
LEAVE_S = 10
PAUSE_S = 1.0
_SAID_AGAIN_S = 60.0


def _too_many() -> bytes:
    """The answer to a client whose connection is beyond the bound."""
    refusal = Refusal(
        503, "ServiceUnavailableException", "The server has too many connections. Try again later."
    )
    answer = error_answer(refusal)
    head = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-type: %b\r\n"
    return head % answer.content_type + b"content-length: %d\r\n\r\n" % len(answer.body) + answer.body


_TOO_MANY = _too_many()

logger = logging.getLogger("interpool.direct")


def _target(url: bytes) -> tuple[str, bytes, bytes]:
    """The path of a request's target, the path as the client sent it, and the query.

    Raises:
        HttpParserError: the target has no path, or is no URL.
    """
    parsed = httptools.parse_url(url)
    if parsed.path is None:
        raise httptools.HttpParserError("the target has no path")
    path = parsed.path.decode("ascii")
    return as_text(unquote_to_bytes(path)) if "%" in path else path, parsed.path, parsed.query or b""


# Clients ask the same few paths again and again.
_known_target = functools.lru_cache(1024)(_target)


async def _fail(error: Exception, *_asgi: object) -> NoReturn:
    """Fail as an ASGI application; uvicorn logs the error, and answers 500."""
    raise error


class _Protocol(HttpToolsProtocol):
    """Bounds the time and memory that a client takes. uvicorn's own protocol sets no such limits."""

    _begun: float | None = 0.0  # when a request began to arrive, by the loop's clock; None: none is arriving
    _in_head = True
    _framing = 0  # bytes that have arrived since the end of a head or request, or since a body's last bytes
    _unread = 0  # bytes that the client has not read yet
    _read = 0.0  # when that number last changed
    _answered = 0.0  # when the last answer was written
    _look: asyncio.TimerHandle | None = None
    _ordinary_head = b""  # the last head that asked for another protocol, without that
    _refusal = ""  # why what came after the requests in line is no request; they are answered first
    application: Application
    open: set[_Protocol]  # the server's, which this is one of until it is lost
    cycle: Exchange
    _answering: Exchange | None = None  # the request that is answered next, or was last
    pipeline: deque[tuple[Exchange, Any]]  # type: ignore[assignment]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begun = self.loop.time()
        self._look = self.loop.call_later(LOOK_S, self._end_if_slow)

    def data_received(self, data: bytes) -> None:
        if self._refusal:
            return
        self._framing += len(data)
        try:
            self._parse(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse("Invalid HTTP request received.")
        if self._framing > MOST_HEAD_BYTES:
            self._refuse(_LARGE_HEAD)

    def _refuse(self, why: str) -> None:
        """Answer 400 and end the connection, if it has not ended yet. Requests before are answered first."""
        if self.transport.is_closing() or self._refusal:
            return
        self.logger.warning("%s", why)
        is_in_body = not self._in_head
        if is_in_body and self.pipeline:
            self.pipeline.popleft()  # it is this request's body that is wrong
        elif is_in_body and self.cycle.response_started:
            self.transport.close()  # a client would take a second head for a part of the answer
            return
        elif is_in_body or self._answering is None or self._answering.response_complete:
            self.send_400_response(why)
            return
        self._refusal, self._begun = why, None
        self.flow.pause_reading()

    def _refuse_head(self, why: str) -> NoReturn:
        """Refuse a head while it is parsed: no request begins, nor does the next one."""
        self._refuse(why)
        raise httptools.HttpParserError(why)

    def _parse(self, data: bytes | memoryview) -> None:
        """Parse what has come.

        If a head asks for another protocol, httptools takes all that follows for that protocol, even the
        request's body. A new parser then gets the head without that wish, and the rest.
        """
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = memoryview(data)[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
                self.parser.feed_data(self._ordinary_head)

    def on_message_begin(self) -> None:
        self._begun = self.loop.time()
        self.url = b""
        self.headers = []
        self._length = b""
        self.expect_100_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # a proxy that checks headers does not check trailers
            name = name.lower()
            if name == b"content-length":
                self._length = value
            elif name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))
            if len(self.headers) > _MOST_HEADERS:
                self._refuse_head(_LARGE_HEAD)

    def on_headers_complete(self) -> None:
        if (
            self._framing > MOST_HEAD_BYTES
            and sum(map(len, chain([self.url], *self.headers))) > MOST_HEAD_BYTES
        ):
            self._refuse_head(_LARGE_HEAD)
        if len(self.pipeline) >= _MOST_IN_LINE:
            self._refuse_head(
                f"The connection has {_MOST_IN_LINE} requests in line. Read their answers first."
            )
        if self.parser.should_upgrade():
            self._ordinary_head = self._head_without_upgrade()
            return
        if self.transport.is_closing():
            return  # the answer before has ended the connection: what follows is ignored
        target = (_known_target if len(self.url) < _MOST_KEPT else _target)(self.url)
        self._in_head, self._framing = False, 0
        self._begin_exchange(*target)

    def _begin_exchange(self, path: str, raw_path: bytes, query: bytes) -> None:
        """Take the request whose head has come, with this target."""
        parser, version, last = self.parser, self.parser.get_http_version(), self.cycle
        scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": self.headers,
            "state": self.app_state.copy(),
            "method": parser.get_method().decode("ascii"),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
        }
        keep_alive = version != "1.0" and parser.should_keep_alive()
        self.cycle = Exchange(scope, self, keep_alive, self.expect_100_continue, self._is_short())
        if last is None or last.response_complete:
            self._begin_next(self.cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _is_short(self) -> bool:
        """Whether the body is so short that the application may get the request when it is whole."""
        length = self._length
        is_number = length.isdigit() and len(length) <= _MOST_DIGITS
        return is_number and int(length) <= _MOST_HELD_BYTES and not self.expect_100_continue

    def _begin_next(self, exchange: Exchange) -> None:
        """Begin with the request that is to be answered next."""
        self._answering = exchange
        if not exchange.is_short or not exchange.more_body:
            self._start(exchange)

    def _start(self, exchange: Exchange) -> None:
        """Give a request to the application: by a task, unless it takes the whole request at once."""
        application = self.app
        if exchange.is_short:
            try:
                if self.application.take(exchange):
                    return
            except Exception as error:  # noqa: BLE001 (httptools would take it for the client's fault)
                application = functools.partial(_fail, error)
        self.run(exchange, application)

    def run(self, exchange: Exchange, application: Any) -> None:
        """Have an ASGI application answer a request, in a task."""
        self._start_asgi_task(exchange, application)

    def _head_without_upgrade(self) -> bytes:
        """The head without its wish for another protocol, which servers may ignore (RFC 9110, 7.8)."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise httptools.HttpParserError("a tunnel's bytes are no requests")
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        version = self.parser.get_http_version().encode()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(lines))

    def on_body(self, body: bytes) -> None:
        if self._in_head:
            return
        self._framing = 0
        exchange = self.cycle
        if exchange.response_complete:  # what is left of the body is read and dropped
            return
        exchange.add(body)
        if exchange.held_bytes > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        self._begun = None
        if self._in_head:
            return
        self._in_head, self._framing = True, 0
        exchange = self.cycle
        exchange.more_body = False
        exchange.message_event.set()
        if exchange is self._answering:
            self.flow.resume_reading()  # else the server would not see that the client leaves
            if exchange.is_short:
                self._start(exchange)

    def on_response_complete(self) -> None:
        self._answered = self.loop.time()
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._begin_next(self.pipeline.pop()[0])
        elif self._refusal:
            self.send_400_response(self._refusal)
        if not self.pipeline and not self._refusal:  # else each answer would let more requests in
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.discard(self)
        if self._answering is not None:  # uvicorn would only look at the last request
            self._answering.disconnected = True
            self._answering.message_event.set()
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)
        if self._answering is not None:
            self._answering.on_left()

    def _end_if_slow(self) -> None:
        """End a connection whose client takes too long to send a request, to read, or to ask again.

        Between requests, nothing else counts as one. A client could send an empty line now and then for ever.
        """
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if unread != self._unread or not unread:
            self._unread, self._read = unread, now
        if self._begun is not None and self.flow.read_paused:
            self._begun = now  # the server itself has paused reading, and does not wait for the client
        if now - self._read > REQUEST_S or (self._begun is not None and now - self._begun > REQUEST_S):
            self.transport.abort()  # ``close`` would wait until the client has read all
            return
        if self._begun is None and self.cycle.response_complete and now - self._answered > KEEP_ALIVE_S:
            self.transport.close()
            return
        self._look = self.loop.call_later(LOOK_S, self._end_if_slow)


class _Server(uvicorn.Server):
    """Accepts connections itself, to refuse those beyond a bound: uvicorn has a bound for requests only.

    Args:
        config: uvicorn's configuration.
        application: the application that answers.
        listeners: bound sockets; the server closes them at its end.
        most: the most connections at a time.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        application: Application,
        listeners: Sequence[socket.socket],
        most: int,
    ) -> None:
        super().__init__(config)
        self._application = application
        self._listeners = listeners
        self._most = most
        self._begun: set[asyncio.Task[None]] = set()  # that make connections, with TLS if there is any
        self._open: set[_Protocol] = set()  # connections, from when they are accepted to when they are lost
        self._refused_at = -math.inf

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self._listeners:
            listener.setblocking(False)
            listener.listen(_BACKLOG)  # fails if another process listens at the address since it was bound
        await super().startup([])
        self._loop = asyncio.get_running_loop()
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        for task in self._begun:
            task.cancel()
        await super().shutdown([])

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("the direct address takes no connection for a second: %s", error)
                self._loop.remove_reader(listener)
                self._loop.call_later(PAUSE_S, self._go_on, listener)
                return
            connection.setblocking(False)
            if len(self._open) >= self._most:
                self._refuse(connection)
                continue
            protocol = _Protocol(self.config, self.server_state, self.lifespan.state)
            protocol.application, protocol.open = self._application, self._open
            self._open.add(protocol)
            task = self._loop.create_task(self._connect(connection, protocol))
            self._begun.add(task)
            task.add_done_callback(self._begun.discard)

    def _go_on(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

    async def _connect(self, connection: socket.socket, protocol: _Protocol) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self.config.ssl,
                ssl_handshake_timeout=HANDSHAKE_S if self.config.ssl else None,
            )
        except BaseException as error:
            self._open.discard(protocol)
            connection.close()
            if not isinstance(error, OSError):  # the client has left, or speaks no TLS
                raise

    def _refuse(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if not self.config.ssl:
                connection.send(_TOO_MANY)
        now = self._loop.time()
        if now - self._refused_at > _SAID_AGAIN_S:
            self._refused_at = now
            logger.warning(
                "the direct address refuses connections: it has %d. Raise the hard limit of open files "
                "(`ulimit -Hn`), or let a proxy keep fewer open",
                self._most,
            )


def most_connections() -> int:
    """The most connections at a time: a quarter of the process's descriptors, but no more than 10,000.

    The other descriptors are for the models' files and for TorchServe's workers.
    """
    return min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


def server(application: Application, listeners: Sequence[socket.socket], **settings: Any) -> uvicorn.Server:
    """A server of the application. It refuses connections beyond ``most_connections``.

    Args:
        application: the application that answers.
        listeners: bound sockets. The server listens at them once it is started, and closes them at its end.
        settings: further settings of uvicorn, such as those of TLS. ``timeout_graceful_shutdown`` are the
            seconds in which it answers the requests that it has at its end, by default 10.
    """
    settings.setdefault("timeout_graceful_shutdown", LEAVE_S)
    config = uvicorn.Config(
        application,
        http=_Protocol,
        loop="uvloop",
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        **settings,
    )
    return _Server(config, application, listeners, most_connections())
