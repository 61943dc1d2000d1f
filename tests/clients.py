"""Clients that ask while a test changes what answers them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Self


class Load:
    """Clients that ask again and again, each on a thread; what they were answered is counted.

    Args:
        ask: gives an answer, or raises.
        clients: how many.

    Attributes:
        answers: how often each came.
        failures: what was raised.
    """

    def __init__(self, ask: Callable[[], Any], clients: int = 1) -> None:
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        self._ask = ask
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._keep_asking) for _ in range(clients)]

    def _keep_asking(self) -> None:
        while not self._over.is_set():
            try:
                self.answers[repr(self._ask())] += 1
            except Exception as error:  # noqa: BLE001 - the test says which may be
                self.failures.append(f"{type(error).__name__}: {error}")

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
