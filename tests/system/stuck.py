"""A model whose calls do not come back, each in its own way, as a user would have written it by mistake."""

from __future__ import annotations

import ctypes
import time
from typing import Any

FOR_EVER_S = 1_000_000_000


def _loop() -> None:
    while True:
        pass


def _nap() -> None:
    while True:
        time.sleep(0.01)


def _hold_the_gil() -> None:
    ctypes.PyDLL(None).sleep(FOR_EVER_S)


def _sleep_in_c() -> None:
    ctypes.CDLL(None).sleep(FOR_EVER_S)


WAYS = {
    "loop": _loop,
    "nap": _nap,
    "hold the GIL": _hold_the_gil,
    "sleep in C": _sleep_in_c,
}


class Stuck:
    """A handler: answers, unless the request names a way not to."""

    def initialize(self, context: Any) -> None:
        self.calls = 0

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        return [self._one(row.get("body") or row.get("data")) for row in data]

    def _one(self, wish: Any) -> Any:
        way = wish.get("way") if isinstance(wish, dict) else None
        if way is not None:
            WAYS[way]()
        self.calls += 1
        return {"calls": self.calls}


class SlowToLoad(Stuck):
    """Takes longer to load than some calls may take."""

    def initialize(self, context: Any) -> None:
        time.sleep(2.5)  # the host looks every second
        super().initialize(context)


def stuck() -> Stuck:
    return Stuck()


def slow_to_load() -> Stuck:
    return SlowToLoad()
