"""HTTP clients that wait for each answer before they ask again, in one thread that takes little of a core."""

from __future__ import annotations

import re
import selectors
import socket
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass
class Load:
    """What clients met: the seconds of each request, how many a second there were, answers if wanted."""

    seconds: list[float] = field(default_factory=list)
    rate: float = 0.0
    answers: list[bytes] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def percentile(values: list[float], part: float) -> float:
    """Of so many values, the one below which that part of them lies."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


class _Client:
    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.left = memoryview(b"")
        self.got = b""
        self.begun = 0.0

    def ask(self, request: bytes) -> None:
        self.begun = time.perf_counter()
        self.got = b""
        self.left = memoryview(request)
        self.send()

    def send(self) -> bool:
        """Whether all is sent."""
        try:
            while self.left:
                self.left = self.left[self.socket.send(self.left) :]
        except BlockingIOError:
            pass
        return not self.left

    def answer(self) -> tuple[int, bytes] | None:
        """Status and body, once they are there."""
        try:
            got = self.socket.recv(1 << 16)
        except BlockingIOError:
            return None
        if not got:
            raise ConnectionError("the server has hung up")
        self.got += got
        head, found, body = self.got.partition(b"\r\n\r\n")
        if not found:
            return None
        length = _LENGTH.search(head)
        if length is None:
            raise ConnectionError(f"an answer without a length: {head!r}")
        return (int(head[9:12]), body) if len(body) >= int(length[1]) else None


def load(
    url: str, body: bytes, content_type: str, clients: int, seconds: float, expected: bytes | None
) -> Load:
    """Post a body again and again for so many seconds, by so many clients.

    Args:
        expected: what each answer must be, but for white space; None: answers are kept instead.
    """
    where = urlsplit(url)
    head = f"POST {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: {content_type}\r\n"
    request = (head + f"Content-Length: {len(body)}\r\n\r\n").encode() + body
    assert where.hostname
    assert where.port
    found = Load()
    with selectors.DefaultSelector() as selector:
        asking = [_Client(where.hostname, where.port) for _ in range(clients)]
        begun = time.perf_counter()
        for client in asking:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.ask(request)
        waiting = set(asking)
        while waiting:
            events = selector.select(60)
            if not events:
                raise TimeoutError(f"{url}: no answer in a minute")
            for key, _ in events:
                client = key.data
                if client.left:
                    client.send()
                answer = client.answer()
                if answer is None:
                    continue
                now = time.perf_counter()
                found.seconds.append(now - client.begun)
                if expected is None:
                    found.answers.append(answer[1])
                if answer[0] != 200 or (expected is not None and answer[1].split() != expected.split()):
                    found.errors.append(f"{answer[0]} {answer[1][:200]!r}")
                if now - begun < seconds and len(found.errors) < 10:
                    client.ask(request)
                else:
                    waiting.discard(client)
            for client in waiting:  # large requests go out in parts
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.left else 0)
                if selector.get_key(client.socket).events != wanted:
                    selector.modify(client.socket, wanted, client)
        found.rate = len(found.seconds) / (time.perf_counter() - begun)
        for client in asking:
            client.socket.close()
    return found
