"""Has torch's own samples (``own_samples``) recorded where all of torch is imported, and asks lean ones."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from interpool_testing import PATH, run_program

from interpool.native import InterpreterManager, InterpreterSession


class Asked(NamedTuple):
    """What came of one guest's samples."""

    entries: int
    samples: int
    touching: list[str]  # entries that had torch's compiler imported; the next had a new interpreter
    differing: list[str]


def asked_again(guests: Sequence[str], samples: int, stride: int = 1) -> dict[str, Asked]:
    """Asks in a process of its own, which keeps the memory of all interpreters that were leased.

    Args:
        guests: names of a guest's objects (``module:name``); last, those that need all of torch.
        samples: how many of each entry.
        stride: which entries: each of this many.
    """
    done = run_program(
        "import sys, asked_again; asked_again.main(*sys.argv[1:])",
        *map(str, (samples, stride)),
        *guests,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {guest: Asked(*what) for guest, what in json.loads(done.stdout.splitlines()[-1]).items()}


def main(samples: str, stride: str, *guests: str) -> None:
    """Prints what came of them."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        path, answers = f"{folder}/samples", f"{folder}/answers"
        full = stack.enter_context(_interpreter(full=True))
        lean = None
        found = {}
        for guest in guests:
            module, _, name = guest.partition(":")
            here = full.global_(module, name)
            entries, count, differing = here.attr("record")(path, int(samples), int(stride)).to_value()
            touching: list[str] = []
            first = 0
            while first < entries and len(touching) <= most_touching(entries):
                lean = lean or stack.enter_context(_interpreter())
                there = lean.global_(module, name)
                first, touched = there.attr("answer")(path, answers, first).to_value()
                differing += here.attr("compare")(answers).to_value()
                if touched:
                    touching.append(touched)
                    lean = None
            found[guest] = entries, count, touching, differing
    print(json.dumps(found))


def most_touching(entries: int) -> int:
    """Of so many entries, how many may have the compiler imported: by torch itself, in a few operators."""
    return max(1, entries // 20)


@contextmanager
def _interpreter(*, full: bool = False) -> Iterator[InterpreterSession]:
    os.environ["INTERPOOL_FULL_IMPORT"] = "01"[full]
    with InterpreterManager(1) as pool, pool.acquire_session() as session:
        session.global_("sys", "path").attr("extend")(PATH)
        yield session
