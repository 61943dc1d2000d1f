"""Runs in interpreters, and in the host for the right answer: what `scripts/bench libraries` computes."""

from __future__ import annotations

import importlib
import time
import warnings
from pathlib import Path
from typing import Any

from interpool.native.inside import interpreter_id

Answer = list[Any]

# Each library's computation, and the benchmark's module that has it.
MODULES = {
    "numpy": "numeric",
    "scipy": "numeric",
    "pandas": "numeric",
    "sklearn": "numeric",
    "pillow": "text",
    "tokenizers": "text",
    "safetensors": "text",
    "transformers": "text",
    "regex": "text",
    "yaml": "text",
    "psutil": "network",
    "lxml": "text",
    "sentencepiece": "text",
    "cv2": "text",
    "pyarrow": "storage",
}
LIBRARIES = list(MODULES)


def answer(library: str) -> Answer:
    """The same wherever it runs; compiled code of that library finds it."""
    module = importlib.import_module(f"benchmarks.libraries.{MODULES[library]}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs are not what is tested
        return getattr(module, library)()  # type: ignore[no-any-return]


def overlapping(library: str, meeting: str, guests: int) -> Answer:
    """The answer, found while every other guest is busy with the same library.

    Asks again until all ``guests`` have been through once. Each shows the others so by a file in the folder
    ``meeting``: none is done before all work.
    """
    found = answer(library)
    (Path(meeting) / f"{library}-{interpreter_id()}").touch()
    deadline = time.monotonic() + 180
    while len(list(Path(meeting).glob(f"{library}-*"))) < guests:
        assert time.monotonic() < deadline, "the other guests did not come"
        assert answer(library) == found
    assert answer(library) == found
    return found


def in_turn(libraries: list[str]) -> dict[str, Answer]:
    """An answer of each library, in the order given."""
    return {library: answer(library) for library in libraries}
