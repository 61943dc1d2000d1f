"""Threads of a free-threaded CPython beside interpreters, processes, and threads under the GIL.

For each model, all ways take turns in every round. If the peer cannot run a model, the result says why.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NoReturn

from benchmarks.scaling.rounds import SCALES, Configurations, doubt, measure, started
from benchmarks.shared import archiving, report, shared_python
from benchmarks.shared.peer import Peer
from benchmarks.shared.worker import Worker

MODELS = "gated", "dlrm", "bert"  # of own_models.py, which imports torch
PROCESSES = "two processes"
PEERS = "one thread", "two threads on one module", "two threads, a copy each"


def run(peer: Peer, rounds: int, seconds: float) -> NoReturn:
    """Measure, print, keep, and exit; the only bar is the machine's."""
    measured: dict[str, list[float]] = {}
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        python = shared_python.embedding(Path(folder, "python")) if shared_python.is_linked_in() else None
        for model in MODELS:
            if reason := missing(peer, model):
                left_out[model] = reason
                print(f"  {model}: {peer.name} cannot run it: {reason}")
            archive = Path(folder, f"{model}.ptpkg")
            archiving.pack(f"benchmarks.scaling.own_models:{model}", archive)
            rates = compare(None if reason else peer, model, archive, python, rounds, seconds)
            measured |= {f"{model}: {way}": each for way, each in rates.items()}
    control = min(
        report.ratio(measured[f"{model}: {PROCESSES}"], measured[f"{model}: one process"]) for model in MODELS
    )
    report.finish(
        "scaling-peer",
        measured,
        "calls/s",
        [report.Bar("two processes over one, the least of all models", control, SCALES)],
        doubt(control),
        control=control,
        peer=peer.kept(),
        left_out=left_out,
    )


def missing(peer: Peer, model: str) -> str:
    """Why the peer cannot run the model; empty if it can."""
    try:
        started("module", 1, model, python=peer.python).stop()
    except RuntimeError as error:
        return str(error)
    return ""


def compare(
    peer: Peer | None, model: str, archive: Path, python: Path | None, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Calls a second, by way, in each round; the peer's ways name its versions and its GIL.

    Args:
        peer: none if it cannot run the model.
        python: what ordinary processes run, if not this process's program.
    """
    peers: list[Worker] = []

    def start() -> Configurations:
        first, second = (started("module", 2, model, python=python) for _ in range(2))
        ways: Configurations = {
            "one process": ([first], 1),
            PROCESSES: ([first, second], 1),
            "two threads under the GIL": ([first], 2),
            "two interpreters": ([started("interpreters", 2, model)], 2),
            "two threads, movable object": ([started("movable", 2, model, archive)], 2),
        }
        if peer:
            module, copies = (started(mode, 2, model, python=peer.python) for mode in ("module", "copies"))
            peers.extend((module, copies))
            ways |= zip(PEERS, (([module], 1), ([module], 2), ([copies], 2)), strict=True)
        return ways

    measured = measure(start, rounds, seconds)
    if peer:
        label = peer.label({each.said for each in peers}, {each.ended for each in peers})
        measured = {f"{way}, {label}" if way in PEERS else way: each for way, each in measured.items()}
    return measured
