"""One request and its answer, as they went over the wire."""

from __future__ import annotations

import http.client
import re
import socket
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from local_server import TorchServe
from system.comparison.archive import Request, Step

# What differs between two answers of one server: ids, and what TorchServe writes of the time.
IGNORED_HEADERS = {"x-request-id", "date"}


@dataclass(frozen=True)
class Exchange:
    """An answer: its body in the pieces that it came in."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    pieces: tuple[bytes, ...]

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


def send(server: TorchServe, model: str, step: Step) -> list[Exchange]:
    """Send one request, or several at once; their answers in the step's order."""
    if isinstance(step, Request):
        return [_send(server, model, step)]
    with ThreadPoolExecutor(len(step)) as threads:
        return list(threads.map(lambda request: _send(server, model, request), step))


def _send(server: TorchServe, model: str, request: Request) -> Exchange:
    management = request.method == "MANAGEMENT"
    address = urllib.parse.urlsplit(server.management if management else server.inference)
    method = "GET" if management else request.method
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=120)
    headers = dict(request.headers)
    if request.content_type is not None:
        headers["Content-Type"] = request.content_type
    try:
        connection.request(method, request.path.format(model=model), request.body, headers)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = connection.getresponse()
        pieces = tuple(_pieces(answer))
        same = tuple(_plain(server, piece) for piece in pieces)
        ignored = IGNORED_HEADERS if same == pieces else IGNORED_HEADERS | {"content-length"}
        headers = {name.lower(): value for name, value in answer.getheaders() if name.lower() not in ignored}
        return Exchange(answer.status, answer.reason, tuple(sorted(headers.items())), same)
    finally:
        connection.close()


def _pieces(answer: http.client.HTTPResponse) -> list[bytes]:
    """The body's chunks as the server made them, if it came in chunks."""
    if not answer.chunked:
        return [answer.read()]
    pieces = []
    while size := int(answer.fp.readline().split(b";")[0], 16):
        pieces.append(answer.fp.read(size))
        answer.fp.readline()
    return pieces


def _plain(server: TorchServe, body: bytes) -> bytes:
    """Without what names this server's own directories and requests."""
    return plain(server, body.decode("latin-1")).encode("latin-1")


def plain(server: TorchServe, text: str) -> str:
    """The text without what names this server's own directories, ports and processes."""
    text = text.replace(str(server.root), "ROOT")
    text = re.sub(r"ROOT/tmp/models/[0-9a-f]{32}", "MODEL_DIR", text)
    text = re.sub(r"\d+(\.\d+)?it/s", "FAST", text)  # progress bars
    text = re.sub(r"Time\.Milliseconds:[\d.]+\|", "Time.Milliseconds:DURATION|", text)
    text = re.sub(r"#hostname:[^,]*,\d+", "#hostname:HOST,TIME", text)
    text = re.sub(r"0x[0-9a-f]{8,16}", "0xADDRESS", text)
    text = re.sub(r'"(id|startTime|pid|memoryUsage|modelUrl)": [^,\n]*', r'"\1": VARIES', text)
    return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID", text)
