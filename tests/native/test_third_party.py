"""Extension modules of others, in two interpreters at once: numpy, scipy (Fortran) and tokenizers (Rust)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from interpool_testing import assert_clean, run_program

PROGRAM = """
import json, sys
from pathlib import Path

import third_party_guest
from interpool import InterpreterManager
from interpool_testing import every_interpreter, together

LIBRARIES = ("numpy", "scipy", "tokenizers")
CALLS = 100
expected = {name: [getattr(third_party_guest, name)(seed) for seed in range(CALLS)] for name in LIBRARIES}

manager = InterpreterManager(2)
with every_interpreter(manager) as sessions:
    functions = [[session.global_("third_party_guest", name) for name in LIBRARIES] for session in sessions]

    def work(i):
        # The two take turns in opposite order, so that different libraries overlap, too.
        answers = {name: [None] * CALLS for name in LIBRARIES}
        for step in range(CALLS):
            seed = step if i == 0 else CALLS - 1 - step
            for name, function in zip(LIBRARIES, functions[i]):
                answers[name][seed] = function(seed).to_value()
        return answers

    answers = together([lambda i=i: work(i) for i in range(2)])

right = {name: [answer[name] == expected[name] for answer in answers] for name in LIBRARIES}
maps = Path("/proc/self/maps").read_text().splitlines()
loaded = {line.split(maxsplit=5)[5] for line in maps if ".so" in line}
print(json.dumps({"right": right, "loaded": sorted(loaded)}))
"""


@pytest.fixture(scope="module")
def outcome() -> dict[str, object]:
    done = run_program(PROGRAM)
    assert_clean(done)
    result: dict[str, object] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("library", ["numpy", "scipy", "tokenizers"])
def test_a_hundred_overlapping_calls_in_each_of_two_interpreters_are_right(
    outcome: dict[str, dict[str, list[bool]]], library: str
) -> None:
    assert outcome["right"][library] == [True, True]


@pytest.mark.parametrize(
    "extension",
    [
        "numpy/_core/_multiarray_umath",
        "numpy/linalg/_umath_linalg",
        "numpy/random/mtrand",
        "scipy/linalg/_fblas",
        "scipy/linalg/_flapack",
        "scipy/sparse/_sparsetools",
        "tokenizers/tokenizers",
    ],
)
def test_each_interpreter_has_its_own_copy_of_an_extension(
    outcome: dict[str, list[str]], extension: str
) -> None:
    name = Path(extension).name
    files = [path for path in outcome["loaded"] if Path(path).name.startswith(f"{name}.")]
    stock = [path for path in files if f"/{extension}." in path and "site-packages" in path]
    private = [path for path in files if path not in stock]
    assert len(private) == 2, files
    assert len(stock) == 1, files  # the host's own, which computed what was expected


@pytest.mark.parametrize("library", ["libtorch_cpu.so", "libc10.so", "libgomp", "libscipy_openblas"])
def test_what_does_not_use_python_is_there_once(outcome: dict[str, list[str]], library: str) -> None:
    files = [path for path in outcome["loaded"] if Path(path).name.startswith(library)]
    origins = {Path(path).parent for path in files}
    assert files
    assert len(files) == len(origins)  # numpy's OpenBLAS and scipy's are two libraries
    assert all("site-packages" in path for path in files)
