"""One process of the scaling benchmark: waits for ``SECONDS START WIDTH`` lines, prints rates.

Its arguments:

    module|copies|interpreters|load_pickle|movable WIDTH MODEL [ARCHIVE]

Up to WIDTH threads call at once. ``module``: one module of this Python. ``copies``: a copy of it each, which
shares its weights and is made by its thread. ``interpreters``: a model of their own, in a private interpreter
each, where the loop runs, too. ``load_pickle``, ``movable``: the archive's, as the package gives it or as a
movable object, in as many interpreters, from loops in this Python.
When it is ready, and at its end, it says whether its GIL is on.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from benchmarks.shared.at_once import AtOnce, Loop, in_threads, serve
from benchmarks.shared.peer import gil

GUEST = "benchmarks.scaling.own_models"  # interpreters find modules where this process does


def in_interpreters(width: int, name: str) -> list[Loop]:
    """A loop in each of as many interpreters, which have the model."""
    from interpool import InterpreterManager

    manager = InterpreterManager(width)

    def loop(session: Any) -> Loop:
        repeat = session.global_(GUEST, "repeat_own")
        repeat(name, 0.0)
        return lambda seconds: float(repeat(name, seconds).to_value())

    return [loop(manager.acquire_session()) for _ in range(width)]


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


def in_this_python(mode: str, width: int, name: str, archive: str) -> list[Loop]:
    """Loops that run in this Python."""
    import torch

    from benchmarks.scaling.own_models import built, repeat
    from benchmarks.shared.copies import sharing_weights

    torch.set_num_threads(1)
    if mode == "copies":
        return [lambda seconds: repeat(sharing_weights(built(name)), name, seconds)] * width
    model = packaged(mode, width, archive) if archive else built(name)
    return [functools.partial(repeat, model, name)] * width


def main() -> None:
    mode, width, name, archive = sys.argv[1], int(sys.argv[2]), sys.argv[3], "".join(sys.argv[4:])

    def prepare() -> tuple[str, AtOnce]:
        inside = mode == "interpreters"
        loops = in_interpreters(width, name) if inside else in_this_python(mode, width, name, archive)
        for loop in loops:
            loop(0.0)  # what cannot be imported is missed now
        return gil(), in_threads(loops)

    serve(prepare, gil)


if __name__ == "__main__":
    main()
