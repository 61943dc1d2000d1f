"""The soak's clients: each asks one model again and again over one connection, and checks its answers."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from keep_alive import KeptConnection

PAUSE_S = 0.01  # a load that a small machine carries for an hour
FAIL_EVERY = 10
# What a model that adds up {"x": NUMBER} cannot answer, each for a reason of its own.
BAD_INPUT = (
    b'{"x": 1, "fail": true}',
    b'{"y": 1}',
    b'{"x": "one"}',
    b'{"x": null}',
    b'{"x": 1e999}',
    b"[1, 2]",
    b'{"x": 1',
    b"\xff\x00",
    b"",
)


class Client:
    """Asks until it is stopped; a client of a failing model gives each tenth request bad input.

    Attributes:
        under_way: whether a request is, now.
        right: how many answers were right.
        wrong: those that were not, as text.
        twice: answers to requests that had theirs, on the same connection, as text. TorchServe's frontend can
            send one while workers of the model end.
        closed: errors that were no answers to a request, with which the server closed a connection.
        failed: requests without an answer while the model was being changed, or had lost a worker that
            TorchServe did not miss yet. This is to be expected.
        errors: requests with bad input, which were to fail, and did.
        faults: while the model was not being changed, requests without an answer, or that were to fail and
            did not. Also what has ended the client before it was stopped.
    """

    def __init__(
        self, inference: str, model: str, answer: Callable[[dict[str, Any]], dict[str, Any]], failing: bool
    ) -> None:
        self._inference = inference
        self._connection: KeptConnection | None = None
        self._ends = False  # whether the server has said that it closes it, as it does after an error
        self._before: dict[str, Any] | None = None  # what was answered last on this connection
        self._model = model
        self._answer = answer
        self._failing = failing
        self._over = threading.Event()
        self._changed = 0  # odd: being changed now
        self._thread = threading.Thread(target=self._run, name=f"client of {model}")
        self.under_way = False
        self.right = self.failed = self.errors = self.closed = 0
        self.wrong: list[str] = []
        self.twice: list[str] = []
        self.faults: list[str] = []
        self.seconds: list[float] = []  # of each right answer, since they were taken last

    def __enter__(self) -> Client:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """The model is being changed, or loses a worker: requests may have no answer, but no wrong one."""
        self._changed += 1
        try:
            yield
        finally:
            self._changed += 1

    def take_seconds(self) -> list[float]:
        """What each right answer took since this was asked last."""
        taken, self.seconds = self.seconds, []
        return taken

    def _run(self) -> None:
        number = 0
        try:
            while not self._over.is_set():
                number += 1
                self._one(number)
                time.sleep(PAUSE_S)
                self._look_for_more()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the load is not what it is said to be
            self.faults.append(f"{self._model}: the client ended: {error!r}")
        finally:
            self._disconnect()

    def _one(self, number: int) -> None:
        request: dict[str, Any] = {"x": number % 100}
        to_fail = self._failing and number % FAIL_EVERY == 0
        body = BAD_INPUT[number // FAIL_EVERY % len(BAD_INPUT)] if to_fail else json.dumps(request).encode()
        changed = self._changed
        begun = time.perf_counter()
        try:
            if self._connection is None:
                self._connection = KeptConnection(self._inference)
            self.under_way = True
            answer = self._connection.post(f"/predictions/{self._model}", body)
            status, text = answer.status, answer.body
        except OSError as error:
            self._disconnect()
            status, text = 0, repr(error).encode()
        else:
            self._ends = answer.headers.get("connection", "").lower() == "close"
        finally:
            self.under_way = False
        took = time.perf_counter() - begun
        said = f"{self._model} of {body!r}: {status} {text[:200]!r}"
        if status == 200 and not to_fail:
            found = json.loads(text)
            if found == self._answer(request):
                self.right += 1
                self.seconds.append(took)
                self._before = request
            elif self._before is not None and found == self._answer(self._before):
                self.twice.append(said)
                self._disconnect()  # what it would have been answered comes next
            else:
                self.wrong.append(said)
        elif to_fail and status >= 400:
            self.errors += 1
        elif self._changed != changed or changed % 2:
            self.failed += 1
        else:
            self.faults.append(said)

    def _look_for_more(self) -> None:
        """What came without a request. The connection is given up then, as more may come."""
        if self._connection is None:
            return
        try:
            more = self._connection.unasked()
        except OSError:  # closed already
            self._disconnect()
            return
        if more is None:
            if self._ends:
                self._disconnect()
            return
        if more.status < 400:
            self.twice.append(f"{self._model} after {self._before}: {more.body[:200]!r}")
        else:
            self.closed += 1
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._before = None
