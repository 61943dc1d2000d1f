"""One process of ``memory --peer``: starts threads and prints what each further one costs, as JSON.

As with process.py's interpreters, two come first. Each computes something, and then asks a copy of BERT that
shares its weights. The JSON also has the GIL's state after imports and at the end, and what BERT is missing.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import torch

from benchmarks.memory import guest
from benchmarks.memory.guest import FIELDS, memory
from benchmarks.shared.copies import sharing_weights
from benchmarks.shared.peer import gil


def compute() -> None:
    """What makes a thread one that torch has run in."""
    torch.relu(torch.ones(8) @ torch.ones(8, 8))


def main() -> None:
    further = int(sys.argv[1])
    found: dict[str, float | str] = {"missing": ""}
    model = None
    try:
        model = guest.build()
    except ImportError as error:
        found["missing"] = f"{type(error).__name__}: {error}".splitlines()[0]
    found["said"] = gil()

    def ask() -> None:
        guest.ask(sharing_weights(model))

    threads = [ThreadPoolExecutor(1) for _ in range(2 + further)]
    for thread in threads[:2]:
        thread.submit(compute).result()
        if model:
            thread.submit(ask).result()
    taken = {"before": memory()}
    for what, work in {"bare": compute, **({"BERT": ask} if model else {})}.items():
        for thread in threads[2:]:
            thread.submit(work).result()
        taken[what] = memory()
    for what in list(taken)[1:]:
        for field in FIELDS.values():
            found[f"{what}: {field}, MB"] = (taken[what][field] - taken["before"][field]) / further
    found["ended"] = gil()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
