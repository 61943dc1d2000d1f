"""What hosts take, mappings and memory, and whether that grows while they live.

A host that was replaced starts anew, so only samples of the same process are compared, or of two that have
just started. Interpreters are never finalised: of all that a process has, parked and retired ones included,
each has its part.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from interpool.handler.host import control, status

EDGE = 3  # samples at either end of a life: what comes and goes is no growth


@dataclass(frozen=True)
class Sample:
    """What a process takes; or what is allowed to it.

    Attributes:
        interpreters: that it has, whatever their state.
        mappings: lines of its map, of which the kernel allows 65,530, less two for each thread that
            lives: its stack and the page before it. A model may start as many as it likes.
        dirty: MB of memory that nobody else has and that is no file's, swapped or not.
    """

    interpreters: int
    mappings: float
    dirty: float

    def __str__(self) -> str:
        return f"{self.interpreters} interpreters, {self.mappings:.0f} mappings, {self.dirty:.0f} MB"


# Beyond what there was at first: malloc's arenas (a mapping or two for each, 8 for a core), stacks that are
# kept for the next thread, models that were loaded in another interpreter, what an allocator keeps.
TOLERANCE = Sample(0, 120, 64.0)
# For each interpreter that is new: its copies' mappings (some 280), Python, torch and the models.
EACH = Sample(1, 320, 100.0)


def sample(pid: int, interpreters: int) -> Sample | None:
    """What that process takes now; None if it is gone."""
    memory = status.memory_of(pid)
    try:
        mappings = len(Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines())
        mappings -= 2 * len(list(Path(f"/proc/{pid}/task").iterdir()))
    except OSError:
        return None
    if not memory:
        return None
    return Sample(interpreters, mappings, (memory["private_dirty"] + memory.get("swap", 0)) / 1e6)


def sample_hosts(runtime: Path) -> dict[int, Sample]:
    """Of each host that answers there, by its process."""
    found = {}
    for directory in runtime.iterdir():
        try:
            told = json.loads(control.ask_status(directory))
        except (OSError, ValueError):
            continue  # it is being started, or is gone
        stats = told["interpreters"] or {"growing": True}
        if stats["growing"] or not stats["interpreters"]:
            continue  # one that starts takes its part before it is counted
        taken = sample(told["pid"], len(stats["interpreters"]))
        if taken is not None:
            found[told["pid"]] = taken
    return found


def beyond(before: Sample, after: Sample) -> list[str]:
    """What is more than is allowed to it, in words."""
    more = max(0, after.interpreters - before.interpreters)
    faults = []
    for what, unit in (("mappings", ""), ("dirty", " MB")):
        was, now = getattr(before, what), getattr(after, what)
        allowed = was + getattr(TOLERANCE, what) + more * getattr(EACH, what)
        if now > allowed:
            faults.append(
                f"{what} grew from {was:.0f} to {now:.0f}{unit}, with {before.interpreters} and then "
                f"{after.interpreters} interpreters, which allows {allowed:.0f}{unit}"
            )
    return faults


class Lives:
    """What each host took in the course of its life."""

    def __init__(self) -> None:
        self._samples: defaultdict[int, list[Sample]] = defaultdict(list)

    def add(self, samples: dict[int, Sample]) -> None:
        for pid, taken in samples.items():
            self._samples[pid].append(taken)

    def faults(self) -> list[str]:
        """Of all that lived long enough to tell: with as many interpreters, and in all."""
        faults = []
        for pid, life in self._samples.items():
            times = defaultdict(list)
            for taken in life:
                times[taken.interpreters].append(taken)
            spans = [*times.values()] if len(times) == 1 else [*times.values(), life]
            faults += [
                f"host {pid}, {len(span)} samples: {fault}"
                for span in spans
                if len(span) >= 2 * EDGE
                for fault in beyond(_most(span[:EDGE]), _least(span[-EDGE:]))
            ]
        return faults

    def __str__(self) -> str:
        each = [taken for samples in self._samples.values() for taken in samples]
        longest = max(self._samples.values(), key=len, default=[])
        return (
            f"{len(self._samples)} hosts; the longest was looked at {len(longest)} times, and had "
            f"{_most(longest[:EDGE])} at first and {_least(longest[-EDGE:])} at last; "
            f"{median(taken.mappings / taken.interpreters for taken in each):.0f} mappings and "
            f"{median(taken.dirty / taken.interpreters for taken in each):.0f} MB dirty for each interpreter"
            if each
            else "no host was looked at"
        )


def _most(samples: list[Sample]) -> Sample:
    return Sample(
        min(one.interpreters for one in samples),
        max(one.mappings for one in samples),
        max(one.dirty for one in samples),
    )


def _least(samples: list[Sample]) -> Sample:
    return Sample(
        max(one.interpreters for one in samples),
        min(one.mappings for one in samples),
        min(one.dirty for one in samples),
    )
