"""What interpreters are asked to do once for all of them."""

from __future__ import annotations

import time
from pathlib import Path

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
