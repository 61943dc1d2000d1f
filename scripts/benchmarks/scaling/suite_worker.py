"""One process of scaling/suite.py: waits for ``SECONDS START WIDTH`` lines, prints rates.

Its arguments:

    source|graph|interpreters|forked MOST ROOT SPEC STOCK ARCHIVE

WIDTH, up to MOST, is how many call the model at once. The rate is that of all of them. ``source``:
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
import sys
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.shared.at_once import AtOnce, Loop, in_threads, serve, wait_until

GUEST = "benchmarks.scaling.guest"  # interpreters find modules where this process does


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


def in_interpreters(archive: str, stock: str, most: int) -> AtOnce:
    """In as many interpreters of one pool, called by a thread each."""
    from interpool import InterpreterManager

    manager = InterpreterManager(most)
    sessions = [manager.acquire_session() for _ in range(most)]

    def loop(session: Any) -> Loop:
        session.global_(GUEST, "load")(archive, f"{stock}/answer.pt")
        repeat = session.global_(GUEST, "repeat_loaded")
        return lambda seconds: float(repeat(seconds).to_value())

    return in_threads([loop(session) for session in sessions])


def in_this_python(mode: str, most: int, root: str, spec: str, stock: str) -> tuple[str, AtOnce | None]:
    """What to say besides "ready", and the work; None if the model does not become a graph."""
    sys.path.insert(0, root)
    import torch

    from benchmarks.scaling.guest import WARM, inputs_of, repeat

    torch.set_num_threads(1)
    entry = torch.load(f"{stock}/entry.pt", weights_only=False)
    inputs = inputs_of(f"{stock}/answer.pt")
    said = ""
    if mode == "graph":
        from benchmarks.scaling import graphs

        factory = importlib.import_module(spec.partition(":")[0])
        entry, said = graphs.export(entry, inputs, graphs.inputs_of(factory, 1))
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

    def prepare() -> tuple[str, AtOnce | None]:
        if mode == "interpreters":
            return "", in_interpreters(archive, stock, int(most))
        return in_this_python(mode, int(most), root, spec, stock)

    serve(prepare)


if __name__ == "__main__":
    main()
