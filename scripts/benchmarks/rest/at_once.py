"""A TorchServe worker that answers ``ok`` at once: a backend that costs next to nothing.

Stands in the place of ``ts/model_service_worker.py``. Nothing is imported or decoded. With $REST_LINES it
writes what TorchServe's Service writes of each batch, in one write before the answer; else nothing.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import time
from typing import NoReturn

INTEGER = struct.Struct(">i")
OK, END, NOTHING = INTEGER.pack(200), INTEGER.pack(-1), INTEGER.pack(0)


def text(value: bytes) -> bytes:
    return INTEGER.pack(len(value)) + value


class Stream:
    """Fields of the frontend's messages, from as few calls of the system as there can be."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray(1 << 23)
        self._view = memoryview(self._buffer)
        self._at = self._end = 0

    def begin(self) -> None:
        self._at = self._end = 0

    def take(self, count: int) -> memoryview:
        while self._end - self._at < count:
            got = self._connection.recv_into(self._view[self._end :])
            if not got:
                os._exit(0)
            self._end += got
        self._at += count
        return self._view[self._at - count : self._at]

    def integer(self) -> int:
        return int(INTEGER.unpack(self.take(4))[0])

    def field(self) -> bytes:
        return bytes(self.take(self.integer()))

    def skip(self) -> None:
        self.take(self.integer())


class Lines:
    """The log lines of a batch, as TorchServe's own worker has them in its stdout."""

    def __init__(self) -> None:
        self._wanted = bool(os.environ.get("REST_LINES"))
        self._host = socket.gethostname()
        self.model = ""

    def write(self, ids: list[bytes]) -> None:
        if self._wanted:
            now = int(time.time())
            whose = f"|#ModelName:{self.model},Level:Model|#type:GAUGE|#hostname:{self._host},{now}"
            metric = f"[METRICS]PredictionTime.Milliseconds:0.01{whose},{b','.join(ids).decode()}"
            os.write(1, f"Backend received inference at: {now}\n{metric}\n".encode())


def answer_load(stream: Stream, lines: Lines) -> bytes:
    name = stream.field()
    lines.model = name.decode()
    stream.skip()  # path
    stream.integer()  # batch size
    stream.skip()  # handler
    stream.integer()  # GPU
    stream.skip()  # envelope
    stream.take(1)
    return OK + text(b"loaded model " + name) + END


def answer_batch(stream: Stream, lines: Lines) -> bytes:
    answer = OK + text(b"Prediction success")
    ids = []
    while (length := stream.integer()) != -1:
        ids.append(bytes(stream.take(length)))
        answer += text(ids[-1]) + NOTHING + OK + NOTHING + NOTHING + text(b"ok")
        while (length := stream.integer()) != -1:  # headers
            stream.take(length)
            stream.skip()
        while (length := stream.integer()) != -1:  # parameters
            stream.take(length)
            stream.skip()
            stream.skip()
    lines.write(ids)
    return answer + END


def main() -> NoReturn:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sock-name", required=True)
    options, _ = parser.parse_known_args()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(options.sock_name)
    listener.listen(1)
    print(f"[PID]{os.getpid()}\nTorch worker started.\nPython runtime: 3", flush=True)
    connection, _ = listener.accept()
    stream, lines = Stream(connection), Lines()
    while True:
        stream.begin()
        command = bytes(stream.take(1))
        answer = answer_load if command == b"L" else answer_batch
        connection.sendall(answer(stream, lines))


main()
