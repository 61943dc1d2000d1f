"""What a server is made of, from a few measurements, and how many machines a load needs with it.

A stock TorchServe takes, beside its frontend, a process with everything in it for each worker. A pool takes
a host once, an interpreter for each core, each model's weights once and its objects in the interpreters, and
for each worker a shim. docs/growth.md explains the formula.

.venv/bin/python scripts/benchmarks growth.parts results/growth-….json    prints the table of machines
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

from marked import markdown_table

GB = 1000.0  # MB


@dataclass(frozen=True)
class Parts:
    """Memory in MB (PSS), measured with a model that has nearly no weights.

    Attributes:
        frontend: TorchServe's own process, without a worker.
        frontend_worker: what that grows by for each worker.
        base: the host without any interpreter or model; of stock, what its workers have in common.
        interpreter: each of the host's.
        model: what a model adds to each interpreter that has run it.
        worker: what a worker adds: a shim, or a process.
    """

    frontend: float
    frontend_worker: float
    base: float
    interpreter: float
    model: float
    worker: float

    def memory(self, models: int, workers: int, interpreters: int) -> float:
        """Of so many models with so many workers each, without the frontend."""
        once = self.base + interpreters * self.interpreter
        return once + models * (interpreters * self.model + workers * self.worker)


@dataclass(frozen=True)
class Load:
    """What is to be served.

    Attributes:
        models: how many.
        rate: requests a second, of all models together, spread evenly.
        seconds: CPU time of a request.
        weights: MB of each model.
        least_workers: of each model, for its worst moments.
    """

    models: int
    rate: float
    seconds: float
    weights: float
    least_workers: int = 2


@dataclass(frozen=True)
class Machine:
    """One of many that are alike, and what part of its cores and of its memory is to be used."""

    cores: int
    memory: float
    part: float = 0.7


def workers_of(load: Load, machine: Machine) -> int:
    """Of each model: enough for its part of the rate, and no fewer than it is to have."""
    return max(load.least_workers, ceil(load.rate / load.models * load.seconds / machine.part))


def machines(parts: Parts, shared: bool, load: Load, machine: Machine) -> int:
    """How many are needed: by cores, or by memory if that is more.

    Each machine has some of the models, with all of their workers; a model whose rate takes more than a
    machine has its workers on several.

    Args:
        shared: whether a model's weights are in memory once on a machine, or once for each of its workers.
    """
    workers = workers_of(load, machine)
    by_cores = load.rate * load.seconds / (machine.part * machine.cores)
    for_one = machine.cores * parts.model + workers * (parts.worker + parts.frontend_worker)
    for_one += load.weights * (1 if shared else workers)
    once = parts.frontend + parts.base + machine.cores * parts.interpreter
    room = machine.part * machine.memory - once
    if room <= 0:
        raise ValueError(f"a machine of {machine.memory:g} MB does not hold the server itself")
    return max(1, ceil(by_cores - 1e-9), ceil(load.models * for_one / room - 1e-9))


def parts_of(rows: list[dict[str, Any]]) -> dict[str, Parts]:
    """The parts of each server, by least squares over what was measured.

    The frontend is the same program in both, and its parts are of all rows.

    Args:
        rows: the benchmark's table: server, models, workers, interpreters, memory_mb, frontend_mb, computed.
    """
    measured = [row for row in rows if not row["computed"]]
    frontend, frontend_worker = _fit(measured, [_once, _workers], "frontend_mb")
    found = {}
    for server in {row["server"] for row in rows}:
        own = [row for row in measured if row["server"] == server]
        if server == "pool":
            base, interpreter, model, worker = _fit(
                own, [_once, _interpreters, _in_interpreters, _workers], "memory_mb"
            )
        else:
            (base, worker), interpreter, model = _fit(own, [_once, _workers], "memory_mb"), 0.0, 0.0
        found[server] = Parts(frontend, frontend_worker, base, interpreter, model, worker)
    return found


def of_fewest_interpreters(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what was measured once more, for the parts, with more interpreters."""
    few = min(row["interpreters"] for row in rows if row["server"] == "pool")
    return [row for row in rows if row["interpreters"] <= few]


def _once(_row: dict[str, Any]) -> float:
    return 1.0


def _workers(row: dict[str, Any]) -> float:
    return float(row["models"] * row["workers"])


def _interpreters(row: dict[str, Any]) -> float:
    return float(row["interpreters"])


def _in_interpreters(row: dict[str, Any]) -> float:
    return float(row["models"] * row["interpreters"])


def _fit(
    rows: list[dict[str, Any]], columns: list[Callable[[dict[str, Any]], float]], what: str
) -> list[float]:
    """How much of each column there is in what was measured; none less than nothing."""
    left = [[column(row) for column in columns] for row in rows]
    return [max(0.0, part) for part in _least_squares(left, [row[what] for row in rows])]


def _least_squares(left: list[list[float]], right: list[float]) -> list[float]:
    import torch

    solved = torch.linalg.lstsq(
        torch.tensor(left, dtype=torch.float64),
        torch.tensor(right, dtype=torch.float64)[:, None],
        driver="gelsd",
    )
    return [float(value) for value in solved.solution[:, 0]]


LOADS = (
    Load(models=10, rate=100, seconds=0.005, weights=100),
    Load(models=100, rate=100, seconds=0.005, weights=100),
    Load(models=100, rate=1000, seconds=0.005, weights=100),
    Load(models=100, rate=1000, seconds=0.02, weights=500),
    Load(models=1000, rate=1000, seconds=0.005, weights=100),
)
MACHINE = Machine(cores=8, memory=32 * GB)


def table(parts: dict[str, Parts], machine: Machine = MACHINE) -> str:
    """Machines for each load, in Markdown."""
    head = ["models", "requests/s", "CPU time of one", "weights of a model", "stock TorchServe", "interpool"]
    lines = []
    for load in LOADS:
        needed = [machines(parts[name], name == "pool", load, machine) for name in ("stock", "pool")]
        lines.append(
            [f"{load.models:,}", f"{load.rate:,g}", f"{load.seconds * 1000:g} ms", f"{load.weights:g} MB"]
            + [f"{count:,}" for count in needed]
        )
    return markdown_table(head, lines)


def main() -> None:
    rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["table"]
    parts = parts_of(rows)
    for name, each in parts.items():
        print(name, asdict(each))
    print(table(parts))


if __name__ == "__main__":
    main()
