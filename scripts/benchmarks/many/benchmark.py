"""Many models on one machine: fifty of them with four workers each, in one pool.

It registers one archive under all names, one after another, and asks all workers of each at once. It reads
the memory of the host and of the workers' stand-ins, proportionally, so that nothing counts twice. Then it
kills the host, and waits until all workers of all models are ready again and each model answers.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from local_server import TorchServe
from waiting import wait_for

from benchmarks.shared import archiving, report
from benchmarks.shared.memory import pss_mb
from benchmarks.shared.tiny import WIDTH, TinyMLP

RECOVERY = "ready after the host was killed, s"


def ask(running: TorchServe, names: list[str], times: int) -> int:
    """Ask each model so many times; the number of right answers."""
    model = TinyMLP()

    def one(question: tuple[str, int]) -> bool:
        name, number = question
        answer = running.predict(name, {"id": number, "x": number}, timeout=120)
        if answer.status != 200:
            return False
        with torch.inference_mode():
            expected = model(torch.full((1, WIDTH), float(number)))[0]
        said = answer.json
        right = torch.allclose(torch.tensor(said["y"]), expected, atol=1e-5)
        return bool((said["model"], said["id"]) == (name, number) and right)

    with ThreadPoolExecutor(8) as threads:
        return sum(threads.map(one, [(name, number) for number in range(times) for name in names]))


def is_ready(running: TorchServe, name: str, workers: int) -> bool:
    return len(running.ready_workers(name)) == workers


def main() -> None:
    parser = report.parser("many", __doc__)
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--workers", type=int, default=4, help="of each model")
    options = parser.parse_args()
    names = [f"m{number}" for number in range(options.models)]
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, TorchServe() as running:
        model = archiving.hermetic("benchmarks.many.handler:Named", Path(folder) / "named.ptpkg")
        archiving.archive("named", running.store, model)
        start = time.perf_counter()
        for name in names:
            running.checked(running.register("named.mar", model_name=name, initial_workers=options.workers))
        measured["registered, s"] = [time.perf_counter() - start]
        right = ask(running, names, 2 * options.workers)
        time.sleep(5)  # until memory that loading has freed is given back

        each = [pss_mb([shim]) for shim in running.shims()]
        mb = {
            "shims, MB": sum(each),
            "host, MB": pss_mb(running.hosts()),
            "TorchServe's frontend, MB": pss_mb([running.frontend]),
        }
        measured |= {what: [taken] for what, taken in mb.items()} | {"one shim, MB": each}

        start = time.perf_counter()
        running.kill_host()
        wait_for(lambda: len(running.hosts()) == 1, "another host", seconds=120)
        for name in names:
            wait_for(
                lambda name=name: is_ready(running, name, options.workers),  # type: ignore[misc]
                f"the workers of {name}",
                seconds=300,
            )
        measured[RECOVERY] = [time.perf_counter() - start]
        right += ask(running, names, 2)

    asked = len(names) * (2 * options.workers + 2)
    print(f"  {right} of {asked} answers right")
    scale = options.models * options.workers / 200
    report.finish(
        "many",
        measured,
        "",
        [
            report.Bar("right answers", right / asked, 1.0),
            report.Bar("20 s over the registrations", 20 * scale / measured["registered, s"][0], 1.0),
            report.Bar("1000 MB over all of these", 1000 * scale / sum(mb.values()), 1.0),
            report.Bar("100 MB over the shims", 100 * scale / mb["shims, MB"], 1.0),
            report.Bar("12 s over the recovery", 12 * scale / measured[RECOVERY][0], 1.0),
        ],
        options=vars(options),
    )


if __name__ == "__main__":
    main()
