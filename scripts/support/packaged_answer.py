"""What archives answer in two interpreters at once, beside what stock_answer.py wrote.

Run as ``python packaged_answer.py [--rounds N [--by WAY]] JSON``, a list of ``{"archive", "stock", "root"}``:
an archive, stock_answer.py's FOLDER, and the source's root. All archives are opened in both
interpreters; each answers in both at once. Prints a JSON list of ``differences``, one list for
each interpreter, empty where the answers are equal, and, with ``--rounds``, ``archive`` and
``torch``: seconds of each load by the archive and by torch.load, in turns, in one interpreter.
With ``--by torch`` or ``--by archive`` there is only that, and no answer: what brings operators of
its own cannot be loaded from archive and source in one process.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
INTERPRETERS = 2
WAYS = ("archive", "torch")
RTOL, ATOL = 1e-5, 1e-6


# ---- inside an interpreter ------------------------------------------------------------------


def differences(archive: str, answer: str) -> list[str]:
    """Where the archive's answer differs from the stock one, a line each."""
    import torch

    from interpool.archiver_ext.verify import self_test
    from interpool.native.archive.format import ENTRY_PACKAGE, ENTRY_RESOURCE
    from interpool.native.inside.packages import load_object

    stock = torch.load(answer, weights_only=True)
    entry = load_object(archive, ENTRY_PACKAGE, ENTRY_RESOURCE)
    sample = self_test.Sample(stock["args"], stock["kwargs"])
    got = self_test.answer(entry, stock["kind"], sample)
    return self_test.differences(stock["expected"], got, RTOL, ATOL)


def load_times(archive: str, entry: str, root: str, rounds: int, ways: list[str]) -> dict[str, list[float]]:
    """Seconds of each load, in turns; one round before is for what each imports."""
    import torch

    from interpool.native.archive.format import ENTRY_PACKAGE, ENTRY_RESOURCE
    from interpool.native.inside.packages import close_package, load_object

    def from_archive() -> float:
        start = time.perf_counter()
        load_object(archive, ENTRY_PACKAGE, ENTRY_RESOURCE)
        took = time.perf_counter() - start
        close_package(archive)
        return took

    def from_torch() -> float:
        start = time.perf_counter()
        torch.load(entry, weights_only=False)
        return time.perf_counter() - start

    sys.path.insert(0, root)  # torch.load takes the code from the source
    close_package(archive)
    times: dict[str, list[float]] = {way: [] for way in ways}
    works = [(way, {"archive": from_archive, "torch": from_torch}[way]) for way in ways]
    for round_number in range(-1, rounds):
        for name, work in works[:: 1 if round_number % 2 else -1]:
            took = work()
            if round_number >= 0:
                times[name].append(took)
    sys.path.remove(root)  # the next one's modules may have the same names
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(root):
            del sys.modules[name]
    return times


# ---- outside --------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--by", choices=WAYS)
    parser.add_argument("jobs")
    options = parser.parse_args()
    jobs: list[dict[str, str]] = json.loads(options.jobs)
    sys.path.insert(0, str(HERE))  # before any interpreter starts: they find modules where this one does

    from interpool import InterpreterManager

    with InterpreterManager(INTERPRETERS) as manager:
        found: list[dict[str, Any]] = [{} for _ in jobs]
        if not options.by:
            found = [{"differences": each} for each in at_once(manager, jobs)]
        if options.rounds:
            with manager.acquire_session() as session:
                measure = session.global_("packaged_answer", "load_times")
                for job, result in zip(jobs, found, strict=True):
                    entry = str(Path(job["stock"]) / "entry.pt")
                    ways = [options.by] if options.by else list(WAYS)
                    times = measure(job["archive"], entry, job["root"], options.rounds, ways)
                    result.update(times.to_value())
    json.dump(found, sys.stdout)


def at_once(manager: Any, jobs: list[dict[str, str]]) -> list[list[list[str]]]:
    """For each job the differences of each interpreter."""
    ready = threading.Barrier(INTERPRETERS)

    def work(number: int) -> list[list[str]]:
        with manager.all_instances()[number].acquire_session() as session:
            compare = session.global_("packaged_answer", "differences")
            answers = []
            for job in jobs:
                ready.wait(300)
                answers.append(compare(job["archive"], str(Path(job["stock"]) / "answer.pt")).to_value())
            return answers

    with ThreadPoolExecutor(INTERPRETERS) as threads:
        try:
            both = list(threads.map(work, range(INTERPRETERS)))
        finally:
            ready.abort()
    return [list(each) for each in zip(*both, strict=True)]


if __name__ == "__main__":
    main()
