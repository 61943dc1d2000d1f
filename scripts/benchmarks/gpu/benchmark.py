"""One GPU, and 1 to 16 that call a model on it at once: interpreters, processes, threads with TorchScript.

First the memory: each way is started with each width, alone, and answers. Then the device's memory in use is
read (of all processes, contexts included). What a further one takes is the slope from the fewest to the most.
Then the rates: all ways are started with the most, and take turns in each round at each width. Each call is
waited for; threads of one process have a stream each.

--device cpu runs the same on the CPU, with the memory of the processes (PSS) instead of the device's.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
import torch

from benchmarks.gpu import guest
from benchmarks.shared import archiving, report
from benchmarks.shared.curves import Curves
from benchmarks.shared.memory import MB, pss_mb
from benchmarks.shared.turns import in_turns
from benchmarks.shared.worker import Worker, counted

INTERPRETERS, PROCESSES, GRAPH = "interpreters", "processes", "graph"
WAYS = (INTERPRETERS, PROCESSES, GRAPH)
SHUT = "there is no GPU that torch can use here; --device cpu measures the same on the CPU"


@dataclass
class OnDevice(Curves):
    """The model's figures; scripts/benchmarks figures draws them.

    Attributes:
        memory_mb: what all of them have in use, less what there was before, for each way and width.
    """

    memory_mb: dict[str, dict[int, float]] = field(default_factory=dict)

    def further_mb(self, way: str) -> float:
        """What a further one takes."""
        by_width = self.memory_mb[way]
        fewest, most = min(by_width), max(by_width)
        return (by_width[most] - by_width[fewest]) / max(1, most - fewest)


class Bench:
    """Starts what is measured on one device."""

    def __init__(self, device: str, folder: Path) -> None:
        self._device = device
        self._archive = folder / "model.ptpkg"

    def start(self, stack: ExitStack, way: str, most: int) -> list[Worker]:
        """Workers that have all given the right answer; the stack ends them."""

        def one(mode: str, width: int) -> Worker:
            worker = Worker("gpu.worker", mode, self._device, str(width), str(self._archive))
            stack.callback(worker.kill)
            return worker

        workers = [one("process", 1) for _ in range(most)] if way == PROCESSES else [one(way, most)]
        expected = _expected()
        for worker in workers:
            said = float(worker.wait_ready())
            if not math.isclose(said, expected, rel_tol=0.02):  # devices round in their own ways
                raise RuntimeError(f"{way}: the answer is {said}, not {expected}")
        return workers

    def used_mb(self, workers: list[Worker]) -> float:
        """Memory of the device; without one, that of the workers."""
        if self._device.startswith("cuda"):
            free, total = torch.cuda.mem_get_info(self._device)
            return (total - free) / MB
        return pss_mb(psutil.Process(worker.pid) for worker in workers)

    def memory_of(self, way: str, width: int) -> float:
        """What so many take, alone on the device."""
        with ExitStack() as stack:
            before = self.used_mb([])
            workers = self.start(stack, way, width)
            return self.used_mb(workers) - before

    def curves(self, widths: list[int], rounds: int, seconds: float) -> OnDevice:
        """Everything."""
        found = OnDevice(guest.NAME, "trace")
        archiving.pack("benchmarks.gpu.guest:large", self._archive)
        for way in WAYS:
            found.memory_mb[way] = {width: self.memory_of(way, width) for width in widths}
        found.rates = {way: {width: [] for width in widths} for way in WAYS}
        with ExitStack() as stack:
            workers = {way: self.start(stack, way, max(widths)) for way in WAYS}
            for way, width in in_turns([(way, width) for width in widths for way in WAYS], rounds):
                at_once, more = (workers[way][:width], 1) if way == PROCESSES else (workers[way], width)
                found.rates[way][width].append(counted(at_once, seconds, more))
            for worker in [one for group in workers.values() for one in group]:
                worker.stop()
        return found


def _expected() -> float:
    """The model's answer in this process, on the CPU."""
    return guest.answer(guest.large(), "cpu")


def main() -> None:
    parser = report.parser("gpu", __doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, all ways in each")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement")
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--layers", type=int, default=24, help="of the model, 50 MB each")
    options = parser.parse_args()
    on_gpu = options.device.startswith("cuda")
    if on_gpu and not torch.cuda.is_available():
        print(f"gpu: inconclusive ({SHUT})")
        sys.exit(report.INCONCLUSIVE)
    os.environ["GPU_LAYERS"] = str(options.layers)
    torch.set_num_threads(1)
    widths = sorted({*options.widths})
    most = widths[-1]
    with tempfile.TemporaryDirectory(prefix="interpool-gpu-") as folder:
        found = Bench(options.device, Path(folder)).curves(widths, options.rounds, options.seconds)
    over = found.ratio((INTERPRETERS, most), (PROCESSES, most))
    bars = [report.Bar(f"interpreters over processes, {most} of them", over, 0.95)]
    if len(widths) > 1:
        least_mb = 1.0  # of an interpreter's: less cannot be distinguished from nothing
        less = found.further_mb(PROCESSES) / max(least_mb, found.further_mb(INTERPRETERS))
        bars.append(report.Bar("memory of a further process over an interpreter's", less, 1.0))
    doubt = "" if on_gpu else "this is the CPU, and the bars are a GPU's"
    report.finish(
        "gpu",
        found.by_name(),
        "calls/s",
        bars,
        doubt,
        suite=[asdict(found)],
        device=torch.cuda.get_device_name(options.device) if on_gpu else "cpu",
        options=vars(options),
    )


if __name__ == "__main__":
    main()
