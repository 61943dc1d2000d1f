"""Models that the serving tests pack, as a user would have written them."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import torch


class Linear(torch.nn.Module):
    """Three numbers to two; says so on stdout, stderr and in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.T


def linear() -> torch.nn.Module:
    return Linear()


class Doubles(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def doubles() -> torch.nn.Module:
    return Doubles()


class Inside:
    """A handler: answers with where it runs, and does what the request says."""

    def initialize(self, context: Any) -> None:
        self.name = context.model_name
        print(f"{self.name} is initialized")

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        return [self._one(row.get("body") or row.get("data"), context, len(data)) for row in data]

    def _one(self, wish: Any, context: Any, batch: int) -> Any:
        wish = wish if isinstance(wish, dict) else {}
        if "say" in wish:
            print(wish["say"])
            print(wish["say"], file=sys.stderr)
            context.metrics.add_counter("Said", 1)
            thread = threading.Thread(target=print, args=("a thread says " + wish["say"],))
            thread.start()
            thread.join()
        time.sleep(wish.get("sleep", 0))
        while "until" in wish and not os.path.exists(wish["until"]):
            time.sleep(0.05)
        if "raise" in wish:
            raise ValueError(wish["raise"])
        if "memory" in wish:
            raise MemoryError
        if "exit" in wish:
            sys.exit(wish["exit"])
        if "odd" in wish:
            return {"cycle": wish["odd"], "object": object()}
        return {"pid": os.getpid(), "model": self.name, "batch": batch, "cwd": os.getcwd()}


def inside() -> Inside:
    return Inside()


class Shown:
    """A handler: answers with what it gets of a request, and finds in its environment."""

    def initialize(self, context: Any) -> None:
        pass

    def handle(self, data: list[dict[str, Any]], _context: Any) -> list[Any]:
        secret = os.environ.get("SECRET_X")
        return [{"body": type(row["body"]).__name__, "secret": secret, "pid": os.getpid()} for row in data]


def shown() -> Shown:
    return Shown()


class Raises:
    """Cannot be loaded."""

    def handle(self, data: list[Any], _context: Any) -> list[Any]:
        return data

    def initialize(self, _context: Any) -> None:
        raise FileNotFoundError("no vocabulary here")


def raises() -> Raises:
    return Raises()


def echo(*positional: Any, **named: Any) -> dict[str, Any]:
    return {"positional": [_show(v) for v in positional], "named": {n: _show(v) for n, v in named.items()}}


def _show(value: Any) -> str:
    return repr(value).replace("\n", "")


class Echo:
    def __call__(self, *positional: Any, **named: Any) -> dict[str, Any]:
        return echo(*positional, **named)


def make_echo() -> Echo:
    return Echo()
