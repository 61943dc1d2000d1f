"""How long until four more workers answer: the pool against stock TorchServe.

Both servers run the same model, side by side; each round scales each of them
from no worker to four with ``PUT /models/m?min_worker=4&synchronous=true`` and
then sends requests until every new worker has given a first, correct answer.
TorchServe's own log says which worker gave which answer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import report
import torch
from tiny import WIDTH, TinyMLP

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

from local_server import TorchServe  # noqa: E402

WORKERS = 4
BIN = Path(sys.executable).parent
SAID = re.compile(r"W-(\d+)-tiny_1\.0-stdout .*? answered (\S+)")


def archive(store: Path, work: Path) -> None:
    """``pool.mar``, hermetic, and ``stock.mar``, for the stock worker: one handler's code."""
    package = work / "tiny.ptpkg"
    command = [str(BIN / "interpool"), "pack", "tiny_handler:build", "-o", str(package)]
    subprocess.run(command, check=True, cwd=HERE, stdout=subprocess.DEVNULL)
    printed = subprocess.run([str(BIN / "interpool"), "handler"], check=True, capture_output=True, text=True)
    hermetic = ["--serialized-file", str(package), "--handler", printed.stdout.strip()]
    stock = ["--handler", str(HERE / "tiny_handler.py"), "--extra-files", str(HERE / "tiny.py")]
    for name, arguments in (("pool", hermetic), ("stock", stock)):
        command = [str(BIN / "torch-model-archiver"), "--model-name", name, "--version", "1.0"]
        command += [*arguments, "--export-path", str(store), "--force"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def server(name: str, archives: Path) -> Iterator[TorchServe]:
    with TorchServe(overlay=name == "pool") as running:
        shutil.copy(archives / f"{name}.mar", running.store / "tiny.mar")
        answer = running.register("tiny.mar", model_name="tiny", batch_size=1)
        if answer.status != 200:
            raise RuntimeError(f"{name}: {answer.text}")
        yield running


class Asker:
    """Sends numbered requests and keeps when each was answered, and whether rightly."""

    def __init__(self, running: TorchServe) -> None:
        self._server = running
        self._number = 0
        self.answered: dict[str, float] = {}
        with torch.inference_mode():
            self._expected = TinyMLP()(torch.ones(1, WIDTH))[0]

    def ask(self, count: int) -> None:
        with ThreadPoolExecutor(count) as threads:
            list(threads.map(self._one, range(self._number, self._number + count)))
        self._number += count

    def _one(self, number: int) -> None:
        name = f"{id(self)}-{number}"
        answer = self._server.predict("tiny", {"id": name})
        got = torch.tensor(json.loads(answer.body)) if answer.status == 200 else None
        if got is None or not torch.allclose(got, self._expected, atol=1e-6):
            raise RuntimeError(f"a wrong answer: {answer.status} {answer.text}")
        self.answered[name] = time.perf_counter()

    def workers(self) -> dict[str, float]:
        """When each worker gave its first answer, by TorchServe's number of the worker."""
        first: dict[str, float] = {}
        for worker, name in SAID.findall(self._server.model_log()):
            if name in self.answered:
                first[worker] = min(first.get(worker, float("inf")), self.answered[name])
        return first


def scale_up(running: TorchServe) -> tuple[float, float]:
    """Seconds until PUT returns, and until all four new workers have answered."""
    if running.scale("tiny", 0).status != 200:
        raise RuntimeError("the workers were not stopped")
    asker = Asker(running)
    start = time.perf_counter()
    answer = running.request("PUT", f"{running.management}/models/tiny", min_worker=WORKERS, synchronous=True)
    ready = time.perf_counter()
    if answer.status != 200:
        raise RuntimeError(answer.text)
    deadline = ready + 60
    while len(first := asker.workers()) < WORKERS:
        if time.perf_counter() > deadline:
            raise RuntimeError(f"only {len(first)} of {WORKERS} workers answered")
        asker.ask(2 * WORKERS)
    return ready - start, max(first.values()) - start


def shims(running: TorchServe) -> list[float]:
    """Proportional memory of each shim, in MiB."""
    return [process.memory_full_info().pss / 2**20 for process in running.shims()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="scripts/bench startup")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    measured: dict[str, list[float]] = {
        f"{name}: {what}": [] for name in ("pool", "stock") for what in ("ready", "answered")
    }
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        archive(Path(folder), Path(folder))
        servers = {name: stack.enter_context(server(name, Path(folder))) for name in ("pool", "stock")}
        for running in servers.values():
            Asker(running).ask(8)  # warm
        for round_number in range(options.rounds):
            for name in ("pool", "stock")[:: 1 if round_number % 2 else -1]:
                ready, answered = scale_up(servers[name])
                measured[f"{name}: ready"].append(ready)
                measured[f"{name}: answered"].append(answered)
        pool = servers["pool"]
        hosts = [process.pid for process in pool.hosts()]
        memory = shims(pool)
    ratio = statistics.median(
        s / p for p, s in zip(measured["pool: answered"], measured["stock: answered"], strict=True)
    )
    ready = statistics.median(
        s / p for p, s in zip(measured["pool: ready"], measured["stock: ready"], strict=True)
    )
    print(f"  one host {hosts}, shims of {', '.join(f'{m:.1f}' for m in memory)} MiB (PSS)")
    report.finish(
        "startup",
        measured,
        "s",
        [
            report.Bar("stock over pool, each worker's first answer", ratio, 10.0),
            report.Bar("stock over pool, PUT alone", ready, 10.0),
            report.Bar("one host", 1.0 / max(1, len(hosts)) if hosts else 0.0, 1.0),
            report.Bar("10 MiB over the largest shim", 10 / max(memory), 1.0),
        ],
        hosts=hosts,
        shim_pss_mib=memory,
    )


if __name__ == "__main__":
    main()
