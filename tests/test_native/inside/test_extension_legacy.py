"""A user's operators registered by torch::RegisterOperators, the API before TORCH_LIBRARY."""

from __future__ import annotations

import pytest
import torch
from compile import build
from interpool_testing import Code, assert_clean, every_interpreter, run_program, together
from paths import EXTENSIONS

from interpool.native import InterpreterManager

SOURCE = EXTENSIONS / "legacy.cpp"
USE = """
import torch

def use(path):
    torch.ops.load_library(path)
    for i in range(50):
        assert torch.ops.interpool_legacy.shifted(torch.full((3,), float(i))).tolist() == [i + 1] * 3
    return torch.ops.interpool_legacy.called()
"""


@pytest.fixture(scope="module")
def library() -> str:
    return str(build(SOURCE, "legacy_extension.so", with_torch=True))


def test_operators_work_in_every_interpreter_and_in_the_host_afterwards(
    manager: InterpreterManager, library: str
) -> None:
    with every_interpreter(manager) as sessions:
        codes = [Code(session, USE) for session in sessions]
        together([lambda code=code: code.call("use", library) for code in codes])  # type: ignore[misc]
        # The kernel is whichever copy's came first: one for all.
        assert torch.ops.interpool_legacy.called() == 50 * len(codes)
    torch.ops.load_library(library)
    assert torch.ops.interpool_legacy.shifted(torch.ones(2)).tolist() == [2, 2]
    assert torch.ops.interpool_legacy.called() == 50 * len(codes) + 1


def test_operators_that_the_host_had_before_the_pool_work_inside(library: str) -> None:
    done = run_program(
        """
        import sys, torch
        from interpool_testing import Code, every_interpreter

        source, path = sys.argv[1:]
        torch.ops.load_library(path)
        from interpool import InterpreterManager
        with InterpreterManager(2) as manager, every_interpreter(manager) as sessions:
            for session in sessions:
                print(Code(session, source).call("use", path))
        print(torch.ops.interpool_legacy.called())
        """,
        USE,
        library,
    )
    assert_clean(done)
    assert done.stdout.split() == ["50", "100", "100"]
