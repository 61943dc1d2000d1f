"""Whether a host has file descriptors for one more worker."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

import pytest

from interpool.handler.host import resource_limits

_FOR_FILES = 32  # that the host keeps


@pytest.fixture
def room() -> Iterator[contextlib.ExitStack]:
    """Limits this process to 39 descriptors more than are open: 32 and one worker's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened:
        while (used := len(os.listdir("/proc/self/fd")) - 1) < 4 * _FOR_FILES:
            _open(opened)
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + _FOR_FILES + resource_limits.OF_WORKER, hard))
        try:
            yield opened
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _open(opened: contextlib.ExitStack, count: int = 1) -> None:
    for _ in range(count):
        opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))


def test_a_worker_is_taken_if_it_needs_exactly_what_is_left(room: contextlib.ExitStack) -> None:
    _open(room, 3)  # its connection and its two log pipes, which come with the registration
    assert not resource_limits.Limits().refusal(unserved=0)


def test_a_worker_is_refused_if_it_lacks_one_descriptor(room: contextlib.ExitStack) -> None:
    _open(room, 4)
    assert "file descriptors left" in resource_limits.Limits().refusal(unserved=0)


def test_the_room_is_the_same_whether_the_worker_before_is_served_or_not(room: contextlib.ExitStack) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft + resource_limits.OF_WORKER, hard))
    _open(room, 3 + 3)
    assert not resource_limits.Limits().refusal(unserved=1)
    _open(room, resource_limits.OF_WORKER - 3)
    assert not resource_limits.Limits().refusal(unserved=0)
