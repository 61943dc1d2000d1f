"""Two servers that differ in one thing: whether interpool stands behind TorchServe."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from local_server import TorchServe

T = TypeVar("T")


@dataclass(frozen=True)
class Pair:
    """TorchServe as it was installed, and the same with interpool's overlay."""

    stock: TorchServe
    pool: TorchServe

    def both(self, work: Callable[[TorchServe], T]) -> tuple[T, T]:
        """Do the same to both at once; what came of it, stock's first."""
        with ThreadPoolExecutor(2) as threads:
            stock, pool = threads.map(work, (self.stock, self.pool))
        return stock, pool


@contextlib.contextmanager
def pair(
    environment: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    *,
    prepare: Callable[[TorchServe], object] = lambda _server: None,
    kind: type[TorchServe] = TorchServe,
) -> Iterator[Pair]:
    """Both servers, started at once; ordinary archives go to the pool.

    Args:
        environment: added to both.
        properties: likewise.
        prepare: is called with each before it starts.
        kind: of both.
    """
    environment = dict(environment or {})
    stock = kind(overlay=False, environment=dict(environment), properties=dict(properties or {}))
    pool = kind(
        environment={**environment, "INTERPOOL_ORDINARY_ARCHIVES": "pool"}, properties=dict(properties or {})
    )
    prepare(stock)
    prepare(pool)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(2) as threads:
        started = [threads.submit(stack.enter_context, server) for server in (stock, pool)]
        for server in started:
            server.result()
        yield Pair(stock, pool)
