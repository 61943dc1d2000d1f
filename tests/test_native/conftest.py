from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import torch  # noqa: F401  (the host of the shared pool has its own torch, imported before)

from interpool.native import InterpreterManager

if TYPE_CHECKING:
    from serving_client import Client, Connect


@pytest.fixture(scope="session")
def manager() -> Iterator[InterpreterManager]:
    """One pool of four for all tests that need no process of their own: starting one takes seconds."""
    with InterpreterManager(4) as pool:
        yield pool


@pytest.fixture
def connect(manager: InterpreterManager) -> Iterator[Connect]:
    """Makes served connections, and ends them after the test."""
    from serving_client import Client

    with ExitStack() as stack:

        def make(*args: Any, **kwargs: Any) -> Client:
            client = Client(manager, *args, **kwargs)
            stack.callback(client.close)
            return client

        yield make
