"""The soak's clients: each asks one model again and again over one connection, and checks its answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

PAUSE_S = 0.01  # a load that a small machine carries for an hour
FAIL_EVERY = 10


class Client:
    """Asks until it is stopped.

    Attributes:
        right: how many answers were right.
        wrong: those that were not, as text.
        failed: requests without an answer while the model was being changed, as is to be expected.
        errors: requests that were to fail, and did.
        faults: requests without an answer, or that were to fail and did not, while nobody changed the model.
    """

    def __init__(
        self, inference: str, model: str, answer: Callable[[dict[str, Any]], dict[str, Any]], failing: bool
    ) -> None:
        where = urlsplit(inference)
        assert where.hostname
        assert where.port
        self._address = where.hostname, where.port
        self._model = model
        self._answer = answer
        self._failing = failing
        self._over = threading.Event()
        self._changed = 0  # odd: being changed now
        self._thread = threading.Thread(target=self._run, name=f"client of {model}")
        self.right = self.failed = self.errors = 0
        self.wrong: list[str] = []
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
        """The model is being changed: what is asked meanwhile may have no answer, but no wrong one."""
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
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        number = 0
        with contextlib.closing(connection):
            while not self._over.is_set():
                number += 1
                self._one(connection, number)
                time.sleep(PAUSE_S)

    def _one(self, connection: http.client.HTTPConnection, number: int) -> None:
        request: dict[str, Any] = {"x": number % 100}
        to_fail = self._failing and number % FAIL_EVERY == 0
        if to_fail:
            request["fail"] = True
        changed = self._changed
        begun = time.perf_counter()
        try:
            connection.request(
                "POST",
                f"/predictions/{self._model}",
                json.dumps(request),
                {"Content-Type": "application/json"},
            )
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            status, text = 0, repr(error).encode()
        took = time.perf_counter() - begun
        if status == 200 and not to_fail:
            if json.loads(text) == self._answer(request):
                self.right += 1
                self.seconds.append(took)
            else:
                self.wrong.append(f"{self._model} of {request}: {text[:200]!r}")
        elif to_fail and status >= 400:
            self.errors += 1
        elif self._changed != changed or changed % 2:
            self.failed += 1
        else:
            self.faults.append(f"{self._model} of {request}: {status} {text[:200]!r}")
