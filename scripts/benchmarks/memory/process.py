"""One process of ``memory``: starts interpreters and prints what each further one costs, as JSON."""

from __future__ import annotations

import json
import sys
import time

from benchmarks.memory.guest import FIELDS, memory
from interpool import InterpreterManager


def main() -> None:
    further = int(sys.argv[1])
    first = InterpreterManager(2)  # the first imports all of torch, the second makes what all share
    cost: dict[str, float] = {}
    before, cpu = memory(), time.process_time()
    with InterpreterManager(further) as pool:
        cost["ready, s of CPU"] = (time.process_time() - cpu) / further
        bare = memory()
        weights = 0.0
        for instance in pool.all_instances():
            with instance.acquire_session() as session:
                weights += session.global_("benchmarks.memory.guest", "load_and_ask")().to_value()
        asked = memory()
    for field in FIELDS.values():
        cost[f"bare: {field}, MB"] = (bare[field] - before[field]) / further
        cost[f"BERT: {field}, MB"] = (asked[field] - before[field] - weights) / further
    del first
    print(json.dumps(cost))


if __name__ == "__main__":
    main()
