"""One process of the scaling benchmark: waits for ``SECONDS START WIDTH`` lines, prints counts.

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
from typing import Any

from benchmarks.shared.at_once import Loop, in_threads, serve


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


def loops_of(mode: str, width: int) -> list[Loop]:
    """The loops that this process runs at once."""
    if mode == "pool":
        from interpool import InterpreterManager

        manager = InterpreterManager(width)
        sessions = [manager.acquire_session() for _ in range(width)]

        def loop(index: int) -> Loop:
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
    width = int(sys.argv[2])
    serve(lambda: ("", in_threads(loops_of(sys.argv[1], width))))


if __name__ == "__main__":
    main()
