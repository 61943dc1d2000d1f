"""torch keeps settings per thread, in the one libtorch: whoever enters an interpreter leaves them behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from interpool_testing import Code, assert_clean, run_program, together
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from interpool.native import InterpreterManager, InterpreterSession

STATE = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode

class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {})) + 1

def state():
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.zeros(2).device.type,
        torch.zeros(1).item(),
        (torch.ones(2, 2) @ torch.ones(2, 2)).dtype.itemsize,
    )

def leave_behind(what):
    if what == "no_grad":
        torch.set_grad_enabled(False)
    elif what == "inference":
        torch.inference_mode().__enter__()
    elif what == "autocast":
        torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
    else:
        Mode().__enter__()
"""

FRESH = (True, False, False, "cpu", 0.0, 4)


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {})) + 1


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "device": lambda: torch.device("meta"),
    "dispatch mode": DispatchMode,
    "function mode": FunctionMode,
}


def on_a_thread_of_its_own(work: Callable[[], None]) -> None:
    # What leaks, should it leak, goes with the thread.
    together([work])


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS.keys())
def test_the_hosts_settings_do_not_reach_into_an_interpreter(
    session: InterpreterSession, context: Callable[[], AbstractContextManager[Any]]
) -> None:
    def work() -> None:
        code = Code(session, STATE)
        state = code["state"]
        assert state().to_value() == FRESH
        with context():
            inside = state()
        assert inside.to_value() == FRESH

    on_a_thread_of_its_own(work)


@pytest.mark.parametrize("what", ["no_grad", "inference", "autocast", "mode"])
def test_what_a_model_leaves_set_reaches_neither_the_host_nor_the_next_session(
    manager: InterpreterManager, what: str
) -> None:
    names: dict[str, Any] = {}
    exec(STATE, names)

    def work() -> None:
        with manager.acquire_session(timeout=60, affinity="thread state") as session:
            Code(session, STATE)["leave_behind"](what)
            number = session.interpreter_id
        assert names["state"]() == FRESH
        with manager.acquire_session(timeout=60, affinity="thread state") as session:
            assert session.interpreter_id == number
            assert Code(session, STATE).call("state") == FRESH

    on_a_thread_of_its_own(work)


def test_hooks_that_the_host_set_for_saved_tensors_are_not_called_inside() -> None:
    done = run_program("""
        import torch
        from interpool import InterpreterManager

        def hook(tensor):
            calls.append(1)
            return tensor

        calls = []
        source = '''
        import torch
        x = torch.ones(2, requires_grad=True)
        for _ in range(100):
            (x * x).sum().backward()
        gradient = x.grad
        '''
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            names = session.global_("builtins", "dict")()
            with torch.autograd.graph.saved_tensors_hooks(hook, hook):
                session.global_("builtins", "exec")(source.replace(" " * 8, ""), names)
            print(names.attr("__getitem__")("gradient").to_value().tolist(), len(calls))
        """)
    assert_clean(done)
    assert done.stdout == "[200.0, 200.0] 0\n"
