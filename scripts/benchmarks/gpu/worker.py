"""One process of the gpu benchmark: waits for ``SECONDS START WIDTH`` lines, prints rates.

Its arguments:

    process|graph|interpreters DEVICE MOST ARCHIVE

WIDTH, up to MOST, is how many call the model at once. ``process``: this Python has it. ``graph``: the same
with what torch.jit.trace makes of it. ``interpreters``: a private interpreter for each thread. One of them
loads the model from the archive and puts it on the device. The others get it as a movable object, which
shares its weights. What it says when it is ready is the model's answer.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

from benchmarks.shared.at_once import AtOnce, Loop, in_threads, serve

ENTRY = ("interpool-archive", "entry.pkl")
GUEST = "benchmarks.gpu.guest"  # interpreters find modules where this process does


def agreed(answers: list[float]) -> float:
    """The one answer of all interpreters; raises RuntimeError if they differ, or one is no number."""
    most = max(answers)  # which may pass over a nan
    if not all(math.isclose(each, most, rel_tol=1e-3) for each in answers):
        raise RuntimeError(f"interpreters do not agree: {sorted(answers)}")
    return most


def in_interpreters(device: str, most: int, archive: str) -> tuple[str, AtOnce]:
    """The answer, and the work."""
    from interpool import InterpreterManager

    manager = InterpreterManager(most)
    model = manager.load_package(archive).load_pickle(*ENTRY)
    with model.acquire_session() as session:
        placed = session.create_movable(session.self.attr("to")(device))
    sessions = [manager.acquire_session() for _ in range(most)]
    answers: list[float] = []

    def loop(session: Any) -> Loop:
        own = session.from_movable(placed)
        answers.append(float(session.global_(GUEST, "answer")(own, device).to_value()))
        repeat = session.global_(GUEST, "repeat")
        return lambda seconds: float(repeat(own, device, seconds).to_value())

    loops = [loop(session) for session in sessions]
    return str(agreed(answers)), in_threads(loops)


def in_this_python(mode: str, device: str, most: int) -> tuple[str, AtOnce]:
    """The answer, and the work."""
    import torch

    from benchmarks.gpu import guest

    torch.set_num_threads(1)
    model: Any = guest.large().to(device)
    if mode == "graph":
        with torch.inference_mode():
            model = torch.jit.trace(model, guest.inputs(device))
    said = guest.answer(model, device)
    return str(said), in_threads([functools.partial(guest.repeat, model, device)] * most)


def main() -> None:
    mode, device, most, archive = sys.argv[1:]
    if mode == "interpreters":
        serve(lambda: in_interpreters(device, int(most), archive))
    else:
        serve(lambda: in_this_python(mode, device, int(most)))


if __name__ == "__main__":
    main()
