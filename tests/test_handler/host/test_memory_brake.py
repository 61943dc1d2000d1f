"""Allocations fail where memory is short, in a process of their own, and no longer than it is."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from interpool.handler.host.memory import Room
from interpool.handler.host.memory_brake import MemoryBrake

GIB = 1 << 30


@pytest.fixture(autouse=True)
def limit() -> Iterator[tuple[int, int]]:
    """This process's, which stays what it was."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        yield before
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def test_short_memory_limits_growth_to_half_of_what_is_left_until_there_is_enough(
    limit: tuple[int, int],
) -> None:
    rooms = [Room(5 * GIB, 10 * GIB), Room(9 * GIB, 100 * GIB)]
    brake = MemoryBrake(lambda: rooms, lambda: 70 * GIB)
    brake.look()
    assert resource.getrlimit(resource.RLIMIT_DATA) == limit
    rooms[1] = Room(4 * GIB, 100 * GIB)
    brake.look()
    assert resource.getrlimit(resource.RLIMIT_DATA) == (72 * GIB, limit[1])
    rooms[1] = Room(9 * GIB, 100 * GIB)  # not yet enough
    brake.look()
    assert resource.getrlimit(resource.RLIMIT_DATA) == (72 * GIB, limit[1])
    rooms[1] = Room(20 * GIB, 100 * GIB)
    brake.look()
    assert resource.getrlimit(resource.RLIMIT_DATA) == limit


def test_growth_is_limited_to_what_is_left_if_that_is_little_and_goes_fast(limit: tuple[int, int]) -> None:
    rooms = [Room(500, 1000), Room(9 * GIB, 10 * GIB)]
    now = [0.0]
    brake = MemoryBrake(lambda: rooms, lambda: 70 * GIB, lambda: now[0])
    brake.look()
    assert resource.getrlimit(resource.RLIMIT_DATA) == limit
    now[0] += 0.1
    rooms[0] = Room(200, 1000)
    brake.look()
    assert resource.getrlimit(resource.RLIMIT_DATA) == (70 * GIB + 200 - 30, limit[1])
    now[0] += 1
    rooms[0] = Room(190, 1000)  # not that fast: stacks of threads that are about to start take none of it
    brake.look()
    assert resource.getrlimit(resource.RLIMIT_DATA) == limit
    now[0] += 0.005
    rooms[0] = Room(180, 1000)  # all of it is gone before a delayed look
    brake.look()
    assert resource.getrlimit(resource.RLIMIT_DATA) == (70 * GIB + 180 - 30, limit[1])
    now[0] += 0.01
    rooms[0] = Room(179, 1000)
    brake.look()
    assert resource.getrlimit(resource.RLIMIT_DATA) == limit
    rooms[0] = Room(50, 1000)  # short
    brake.look()
    assert resource.getrlimit(resource.RLIMIT_DATA) == (70 * GIB + 25, limit[1])
    rooms[0] = Room(600, 1000)
    brake.look()
    assert resource.getrlimit(resource.RLIMIT_DATA) == limit


def test_the_brake_looks_often_if_little_is_left() -> None:
    def pause(*rooms: Room) -> float:
        return MemoryBrake(lambda: list(rooms), lambda: 70 * GIB).look()

    assert pause() == pause(Room(64 * GIB, 64 * GIB)) == 1.0
    assert pause(Room(2 * GIB, 4 * GIB)) < 0.1  # in which what is not near is gone at 10 GiB a second
    assert pause(Room(2 * GIB, 4 * GIB), Room(1, 4 * GIB)) == 1 / 64


def test_a_look_that_gets_no_memory_is_repeated_and_lifts_the_limit() -> None:
    source = """if True:
        import resource
        import threading
        from interpool.handler.host.memory import Room
        from interpool.handler.host.memory_brake import MemoryBrake
        GIB = 1 << 30
        before = resource.getrlimit(resource.RLIMIT_DATA)
        limited, over = [], threading.Event()

        def rooms():
            limited.append(resource.getrlimit(resource.RLIMIT_DATA) != before)
            if len(limited) == 2:
                raise MemoryError
            if len(limited) == 4:
                over.set()
            return [Room((1 if len(limited) == 1 else 50) * GIB, 100 * GIB)]

        MemoryBrake(rooms, lambda: 70 * GIB).start()
        over.wait(60)
        print(limited[:4])"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[False, True, True, False]\n"), done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "what", ["bytearray(1 << 20)", "[1] * 100", "__import__('array').array('d', [0]) * 999"]
)
def test_code_that_allocates_without_end_gets_a_memory_error(what: str) -> None:
    source = f"""if True:
        from interpool.handler.host import memory
        from interpool.handler.host.memory_brake import MemoryBrake
        limit = 400 << 20
        MemoryBrake(lambda: memory.rooms(limit)).start()
        kept = []
        try:
            while True:
                kept.append({what})
        except MemoryError:
            del kept
            print("refused")
        bytes(1 << 20)"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr
