"""Failures of the host's control plane: how often the log says so, and what ends the host."""

from __future__ import annotations

import errno
import os

import pytest

from interpool.handler.host import survival
from interpool.handler.host.survival import Survival


def _fail() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survival, "PAUSES_S", (0.0, 0.0))


def test_a_step_that_fails_again_and_again_is_logged_once_and_ends_the_host(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = Survival()
    for _ in range(survival.MOST_FAILED_TURNS - 1):
        assert steps.attempt(_fail, "it failed") is not None
        assert steps.attempt(_fail, "it failed") is not None
        assert steps.end_turn() == ""
    steps.attempt(_fail, "it failed")
    assert steps.end_turn() == "its turns fail"
    assert caplog.messages == ["it failed"]


def test_a_fault_that_stays_ends_the_host_at_once() -> None:
    steps = Survival()
    steps.attempt(lambda: os.close(os.open("/dev/null", os.O_RDONLY) + 1000), "it failed")
    assert steps.end_turn().startswith("it failed: Bad file descriptor")
