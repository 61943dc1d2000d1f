"""What interpreters are asked to do once for all of them."""

from __future__ import annotations

import time
from pathlib import Path

import _interpool
from interpool.native.inside.packages import open_package


def do_once(archive: str, log: str, seconds: float, fail: bool) -> str:
    """Writes a line to ``log`` if it is this interpreter that does it."""

    def work() -> str:
        with Path(log).open("a") as file:
            file.write("done\n")
        time.sleep(seconds)
        if fail:
            raise ValueError("not today")
        return "größe"

    return open_package(archive).reader.once("test", work)


def record(archive: str, name: str) -> bytes:
    return open_package(archive).reader.get_record(name)


def lose_turn(archive: str) -> bool:
    """Whether the work is free again after a turn that was not kept."""
    mapping = open_package(archive).reader._mapping
    _interpool.begin_once(mapping, "test", 0)
    return _interpool.begin_once(mapping, "test", 0) is not None
