"""A user's operators on torch's stable ABI, alone or in a Python module, and by torch::RegisterOperators."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from compile import build, python_headers
from interpool_testing import Code, every_interpreter, printed, together
from paths import EXTENSIONS

from interpool.native import InterpreterManager

pytestmark = pytest.mark.long

STABLE, LEGACY = EXTENSIONS / "stable.cpp", EXTENSIONS / "legacy.cpp"
PRIVATE = ("with_module", "legacy")  # they use Python
USE = """
import torch

def use(path, namespace):
    torch.ops.load_library(path)
    operators = getattr(torch.ops, namespace)
    for i in range(50):
        assert operators.shifted(torch.full((3,), float(i))).tolist() == [i + 1] * 3
    return operators.called()
"""


@pytest.fixture(scope="module")
def alone() -> tuple[str, str]:
    """A library that uses no Python: one for the process."""
    return str(build(STABLE, "libstable.so", with_torch=True)), "interpool_stable"


@pytest.fixture(scope="module")
def with_module() -> tuple[str, str]:
    """A library that does, and so is private to each interpreter."""
    options = ("-DPYTHON_MODULE", python_headers())
    path = build(STABLE, "stable_extension.abi3.so", with_torch=True, options=options)
    return str(path), "interpool_stable_module"


@pytest.fixture(scope="module")
def legacy() -> tuple[str, str]:
    """A library that registers its operators by the API before TORCH_LIBRARY."""
    return str(build(LEGACY, "legacy_extension.so", with_torch=True)), "interpool_legacy"


@pytest.mark.parametrize("kind", ["alone", *PRIVATE])
def test_operators_work_in_every_interpreter_at_once_and_in_the_host_afterwards(
    manager: InterpreterManager, kind: str, request: pytest.FixtureRequest
) -> None:
    path, namespace = request.getfixturevalue(kind)
    with every_interpreter(manager) as sessions:
        codes = [Code(session, USE) for session in sessions]
        together([lambda code=code: code.call("use", path, namespace) for code in codes])  # type: ignore[misc]
        # The kernel is that of the copy that came first.
        counts = [getattr(torch.ops, namespace).called()]
        counts += [code.call("use", path, namespace) for code in codes]
    assert counts == [50 * (len(codes) + i) for i in range(len(codes) + 1)]
    torch.ops.load_library(path)
    assert getattr(torch.ops, namespace).shifted(torch.ones(2)).tolist() == [2, 2]
    maps = Path("/proc/self/maps").read_text().splitlines()
    files = {line.split(maxsplit=5)[5] for line in maps if line.endswith(f"/{Path(path).name}")}
    assert len(files) >= len(codes) + 1 if kind in PRIVATE else files == {path}


def test_operators_that_the_host_had_before_the_pool_work_inside(
    alone: tuple[str, str], with_module: tuple[str, str], legacy: tuple[str, str]
) -> None:
    said = printed(
        """
        import sys, torch
        from interpool_testing import Code, every_interpreter

        source, *found = sys.argv[1:]
        for path in found[::2]:
            torch.ops.load_library(path)
        from interpool import InterpreterManager
        with InterpreterManager(2) as manager, every_interpreter(manager) as sessions:
            for session in sessions:
                for path, namespace in zip(found[::2], found[1::2]):
                    print(Code(session, source).call("use", path, namespace))
        print(*(getattr(torch.ops, namespace).called() for namespace in found[1::2]))
        """,
        USE,
        *alone,
        *with_module,
        *legacy,
    )
    assert said.split() == ["50"] * 3 + ["100"] * 6
