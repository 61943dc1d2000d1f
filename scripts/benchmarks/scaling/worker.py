"""One process of the scaling benchmark: waits for ``SECONDS START`` lines, prints counts.

Its arguments:

    process|threads|pool|tower|load_pickle|movable WIDTH [ARCHIVE]

``process``: one loop in ordinary Python. ``threads``: WIDTH threads in one
ordinary Python. ``pool``: WIDTH private interpreters, one thread each. ``tower``: a larger
model, in one loop. ``load_pickle``, ``movable``: the same from its archive, called by WIDTH
threads of this Python in inference mode, in as many interpreters.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


def overlapping(loops: list[Callable[[float], int]], seconds: float) -> int:
    """Run all loops at once, each in a thread; the sum of what they count."""
    counts = [0] * len(loops)
    barrier = threading.Barrier(len(loops))

    def run(index: int) -> None:
        barrier.wait()
        counts[index] = loops[index](seconds)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(loops))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def packaged(how: str, width: int, archive: str) -> Any:
    """The archive's model, in a pool of its own: as the package gives it, or moved out of a session."""
    from interpool import InterpreterManager

    manager = InterpreterManager(width)
    package = manager.load_package(archive)
    model = package.load_entry()
    if how == "movable":
        with model.acquire_session() as session:
            model = session.create_movable(session.self)
    for session in [model.acquire_session() for _ in range(width)]:  # loaded in each of them
        session.close()
    return model


def loops_of(mode: str, width: int) -> list[Callable[[float], int]]:
    """The loops that this process runs at once."""
    if mode == "pool":
        from interpool import InterpreterManager

        manager = InterpreterManager(width)
        sessions = [manager.acquire_session() for _ in range(width)]

        def loop(index: int) -> Callable[[float], int]:
            iterate = sessions[index].global_("benchmarks.shared.tiny", "iterate")
            return lambda seconds: int(iterate(seconds).to_value())

        return [loop(index) for index in range(width)]
    import torch

    from benchmarks.scaling import tower
    from benchmarks.shared.tiny import iterate

    torch.set_num_threads(1)
    if mode == "tower":
        return [functools.partial(tower.repeat, tower.build())]
    if mode in ("load_pickle", "movable"):
        return [functools.partial(tower.repeat, packaged(mode, width, sys.argv[3]))] * width
    return [iterate] * (width if mode == "threads" else 1)


def main() -> None:
    loops = loops_of(sys.argv[1], int(sys.argv[2]))
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, start = map(float, line.split())
        time.sleep(max(0.0, start - time.time()))
        print(overlapping(loops, seconds), flush=True)


if __name__ == "__main__":
    main()
