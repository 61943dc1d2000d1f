"""One process of scaling_suite.py: waits for ``SECONDS START WIDTH`` lines, prints rates.

    python scaling_suite_worker.py source|graph|interpreters|forked MOST ROOT SPEC STOCK ARCHIVE

WIDTH, up to MOST, is how many call the model at once, and the rate that of all of them. ``source``:
threads of one ordinary Python. ``graph``: the same, with what TorchScript or torch.export makes of the
model; says ``ready`` and which of them. ``interpreters``: a private interpreter for each thread, with the
archive. ``forked``: processes that were forked after the weights had been loaded. STOCK is
stock_answer.py's folder.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]  # interpreters find modules where this process does

Loop = Callable[[float], float]
AtOnce = Callable[[float, float, int], float]  # seconds, start, width


def in_threads(loops: list[Loop]) -> AtOnce:
    """Runs as many of the loops as it is told, each in a thread; gives the sum of their rates."""

    def at_once(seconds: float, start: float, width: int) -> float:
        rates = [0.0] * width

        def run(index: int) -> None:
            wait_until(start)
            rates[index] = loops[index](seconds)

        threads = [threading.Thread(target=run, args=(index,)) for index in range(width)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(rates)

    return at_once


def in_forks(loop: Loop, most: int) -> AtOnce:
    """The same in processes, forked now."""
    context = multiprocessing.get_context("fork")
    ends: list[Connection] = []
    for _ in range(most):
        here, there = context.Pipe()
        ends.append(here)
        context.Process(target=_serve, args=(there, loop, ends), daemon=True).start()
        there.close()
    for each in ends:
        each.recv()  # warm

    def at_once(seconds: float, start: float, width: int) -> float:
        for each in ends[:width]:
            each.send((seconds, start))
        return sum(each.recv() for each in ends[:width])

    return at_once


def _serve(end: Connection, loop: Loop, others: list[Connection]) -> None:
    for other in others:
        other.close()  # so that the parent's end, however it comes, is the end
    loop(0.0)
    end.send(0.0)
    with contextlib.suppress(EOFError):
        while True:
            seconds, start = end.recv()
            wait_until(start)
            end.send(loop(seconds))


def wait_until(start: float) -> None:
    time.sleep(max(0.0, start - time.time()))


def in_interpreters(archive: str, stock: str, most: int) -> AtOnce:
    """In as many interpreters of one pool, called by a thread each."""
    from interpool import InterpreterManager

    manager = InterpreterManager(most)
    sessions = [manager.acquire_session() for _ in range(most)]

    def loop(session: Any) -> Loop:
        session.global_("scaling_guest", "load")(archive, f"{stock}/answer.pt")
        repeat = session.global_("scaling_guest", "repeat_loaded")
        return lambda seconds: float(repeat(seconds).to_value())

    return in_threads([loop(session) for session in sessions])


def in_this_python(mode: str, most: int, root: str, spec: str, stock: str) -> tuple[str, AtOnce | None]:
    """What to say besides "ready", and the work; None if the model does not become a graph."""
    sys.path.insert(0, root)
    import torch
    from scaling_guest import WARM, inputs_of, repeat

    torch.set_num_threads(1)
    entry = torch.load(f"{stock}/entry.pt", weights_only=False)
    inputs = inputs_of(f"{stock}/answer.pt")
    said = ""
    if mode == "graph":
        import exported

        factory = importlib.import_module(spec.partition(":")[0])
        found = exported.export(entry, inputs, exported.inputs_of(factory, 1))
        entry, said = found.entry, found.how
        if entry is None:
            return "", None
    loop = functools.partial(repeat, entry, inputs)
    if mode == "forked":
        return "", in_forks(loop, most)
    for _ in range(WARM):
        loop(0.0)
    return said, in_threads([loop] * most)


def main() -> None:
    mode, most, root, spec, stock, archive = sys.argv[1:]
    # A model may print; what is said to the benchmark goes where nobody else writes.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work: AtOnce | None
    if mode == "interpreters":
        said, work = "", in_interpreters(archive, stock, int(most))
    else:
        said, work = in_this_python(mode, int(most), root, spec, stock)
    print("ready", said, file=out, flush=True)
    for line in sys.stdin:
        seconds, start, width = line.split()
        assert work is not None
        print(work(float(seconds), float(start), int(width)), file=out, flush=True)


if __name__ == "__main__":
    main()
