"""What archives answer in two interpreters at once, beside what stock_answer.py wrote.

Run as ``python packaged_answer.py JSON``, a list of ``{"archive", "stock"}``: an archive, and
stock_answer.py's FOLDER. All archives are opened in both interpreters; each answers in both at once.
Prints a JSON list of ``differences``, one list for each interpreter, empty where the answers are equal.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
INTERPRETERS = 2
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


# ---- outside --------------------------------------------------------------------------------


def main(text: str) -> None:
    jobs: list[dict[str, str]] = json.loads(text)
    sys.path.insert(0, str(HERE))  # before any interpreter starts: they find modules where this one does

    from interpool import InterpreterManager

    with InterpreterManager(INTERPRETERS) as manager:
        json.dump([{"differences": each} for each in at_once(manager, jobs)], sys.stdout)


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
    main(sys.argv[1])
