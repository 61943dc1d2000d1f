"""One process of the scaling benchmark: waits for ``SECONDS START`` lines, prints counts.

    python scaling_worker.py process|threads|pool WIDTH

``process``: one loop in ordinary Python. ``threads``: WIDTH threads in one
ordinary Python. ``pool``: WIDTH private interpreters, one thread each.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


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


def loops_of(mode: str, width: int) -> list[Callable[[float], int]]:
    """The loops that this process runs at once."""
    if mode == "pool":
        from interpool import InterpreterManager

        manager = InterpreterManager(width)
        sessions = [manager.acquire_session() for _ in range(width)]

        def loop(index: int) -> Callable[[float], int]:
            iterate = sessions[index].global_("tiny", "iterate")
            return lambda seconds: int(iterate(seconds).to_value())

        return [loop(index) for index in range(width)]
    import torch
    from tiny import iterate

    torch.set_num_threads(1)
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
