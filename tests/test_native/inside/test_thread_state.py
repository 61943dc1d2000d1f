"""A thread that enters an interpreter leaves its settings of torch behind, which the one libtorch keeps."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest
import torch
from interpool_testing import Code, printed, together
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
        str(torch.get_autocast_dtype("cpu")),
        torch.is_autocast_cache_enabled(),
        (torch.ones(2, requires_grad=True) * 2).requires_grad,
        torch.ones(2).is_inference(),
    )

class Model(torch.nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.made_in = state()

    @property
    def modes(self):
        return state()

    def __getitem__(self, key):
        return state()

def leave_behind(what):
    if what == "no_grad":
        torch.set_grad_enabled(False)
    elif what == "inference":
        torch.inference_mode().__enter__()
    elif what == "autocast":
        torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False).__enter__()
    else:
        Mode().__enter__()
"""

FRESH = (True, False, False, "cpu", 0.0, 4, "torch.bfloat16", True, True, False)

# The same, of the host's threads.
HERE: dict[str, Any] = {}
exec(STATE, HERE)


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {})) + 1


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


@contextmanager
def all_of(*contexts: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "autocast without its cache": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    "autocast turned off within autocast": lambda: all_of(
        torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", enabled=False)
    ),
    "grad mode within inference mode": lambda: all_of(torch.inference_mode(), torch.enable_grad()),
    "inference mode ended within": lambda: all_of(torch.inference_mode(), torch.inference_mode(False)),
}

CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "device": lambda: torch.device("meta"),
    "dispatch mode": DispatchMode,
    "function mode": FunctionMode,
}


def modes_here() -> tuple[Any, ...]:
    return HERE["state"]()  # type: ignore[no-any-return]


def on_a_thread_of_its_own(work: Callable[[], None]) -> None:
    # What leaks, should it leak, goes with the thread.
    together([work])


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS.keys())
def test_other_settings_of_the_host_do_not_reach_into_an_interpreter(
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


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
@pytest.mark.parametrize("call_limit", [None, 60], ids=["", "on the thread of a call limit"])
def test_a_call_has_its_callers_modes(
    manager: InterpreterManager, mode: Callable[[], AbstractContextManager[Any]], call_limit: float | None
) -> None:
    def work() -> None:
        with manager.acquire_session(timeout=60, call_limit=call_limit) as session:
            code = Code(session, STATE)
            with mode():
                expected = modes_here()
                model = code["Model"]()
                assert code.call("state") == expected
                assert model.attr("made_in").to_value() == expected
                assert model.attr("modes").to_value() == expected
                assert model["any"].to_value() == expected
                assert modes_here() == expected
            assert code.call("state") == FRESH
            assert modes_here() == FRESH

    on_a_thread_of_its_own(work)


@pytest.mark.parametrize("what", ["no_grad", "inference", "autocast", "mode"])
def test_settings_that_a_model_leaves_do_not_outlive_a_call_in_other_modes(
    session: InterpreterSession, what: str
) -> None:
    def work() -> None:
        code = Code(session, STATE)
        leave_behind = code["leave_behind"]
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False), torch.no_grad():
            expected = modes_here()
            leave_behind(what)
            assert modes_here() == expected
            assert code.call("state") == expected
        assert (modes_here(), code.call("state")) == (FRESH, FRESH)

    on_a_thread_of_its_own(work)


def test_callers_at_once_have_each_their_own_modes(manager: InterpreterManager) -> None:
    def caller(mode: Callable[[], AbstractContextManager[Any]]) -> Callable[[], None]:
        def work() -> None:
            with manager.acquire_session(timeout=60) as session, mode():
                code = Code(session, STATE)
                for _ in range(20):
                    assert code.call("state") == modes_here()

        return work

    names = ("no_grad", "inference_mode", "autocast", "autocast to float16")
    together([caller(MODES[name]) for name in names])


def test_a_movable_object_has_the_callers_modes_and_is_itself_made_in_none(
    manager: InterpreterManager,
) -> None:
    def work() -> None:
        with manager.acquire_session(timeout=60) as session, torch.inference_mode():
            movable = session.create_movable(session.global_("torch.nn", "Linear")(2, 2))
        x = torch.ones(1, 2)
        for _ in range(2):
            with torch.inference_mode():
                assert movable(x).is_inference()
            with torch.no_grad():
                y = movable(x)
                assert not y.is_inference()
            with movable.acquire_session(timeout=60) as session:
                assert not session.self.attr("weight").attr("is_inference")().to_value()
                assert session.self(x).attr("requires_grad").to_value()

    on_a_thread_of_its_own(work)


@pytest.mark.parametrize("what", ["no_grad", "inference", "autocast", "mode"])
def test_settings_that_a_model_leaves_reach_neither_the_host_nor_the_next_session(
    manager: InterpreterManager, what: str
) -> None:
    def work() -> None:
        with manager.acquire_session(timeout=60, affinity="thread state") as session:
            Code(session, STATE)["leave_behind"](what)
            number = session.interpreter_id
        assert modes_here() == FRESH
        with manager.acquire_session(timeout=60, affinity="thread state") as session:
            assert session.interpreter_id == number
            assert Code(session, STATE).call("state") == FRESH

    on_a_thread_of_its_own(work)


def test_autocast_that_a_model_leaves_on_keeps_none_of_its_callers_old_weights(
    manager: InterpreterManager,
) -> None:
    layer = torch.nn.Linear(2, 2, bias=False)

    def answer(weight: float) -> Any:
        with torch.no_grad():
            layer.weight.fill_(weight)
        with torch.autocast("cpu"):
            return layer(torch.ones(2)).tolist()

    def work() -> None:
        with manager.acquire_session(timeout=60) as session:
            Code(session, "import torch\ntorch.autocast('cpu').__enter__()")
        assert [answer(3.0), answer(4.0)] == [[6.0, 6.0], [8.0, 8.0]]

    on_a_thread_of_its_own(work)


def test_a_call_in_the_callers_trace_is_not_traced_itself(session: InterpreterSession) -> None:
    code = Code(session, "def kind(x): return type(x.shape[0]).__name__")
    found = []

    def work(x: torch.Tensor) -> torch.Tensor:
        found.append(code.call("kind", x.detach()))
        return x + x.shape[0]

    traced = torch.jit.trace(work, torch.ones(3), check_trace=False)
    assert found == ["int"]
    assert traced(torch.ones(5)).tolist() == [6.0] * 5


def test_hooks_that_the_host_set_for_saved_tensors_are_not_called_inside(session: InterpreterSession) -> None:
    calls = []

    def hook(tensor: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return tensor

    source = """
    import torch
    x = torch.ones(2, requires_grad=True)
    for _ in range(100):
        (x * x).sum().backward()
    gradient = x.grad
    """

    def work() -> None:
        with torch.autograd.graph.saved_tensors_hooks(hook, hook):
            code = Code(session, source)
        assert code["gradient"].to_value().tolist() == [200.0, 200.0]

    on_a_thread_of_its_own(work)
    assert calls == []


def test_code_between_visits_on_an_interpreters_main_thread_divides_without_floating_point_traps(
    session: InterpreterSession,
) -> None:
    source = """
    import threading, weakref
    import numpy, torch
    seen, gone = [], threading.Event()
    def divide(one, three):
        seen.append((threading.current_thread() is threading.main_thread(), round(one / three, 2)))
        gone.set()
    def make(one, three):
        array = numpy.ones(4)
        weakref.finalize(array, divide, one, three).atexit = False
        return torch.from_numpy(array)
    def what():
        gone.wait(60)
        return seen
    """
    code = Code(session, source)
    tensor = code.call("make", 1.0, 3.0)
    del tensor  # the host's last reference: the array dies inside, in no session
    assert code.call("what") == [(True, 0.33)]


@pytest.mark.long
def test_a_call_in_a_new_threads_state_raises_if_there_are_no_more_threads() -> None:
    said = printed("""
        from interpool import InterpreterManager
        from interpool_testing import Code

        source = '''
        import ctypes, torch
        import _interpool

        def call():
            with torch.no_grad():
                return _interpool.call_fresh(torch.is_grad_enabled)

        def call_without_threads():
            libc = ctypes.CDLL(None)
            usual, vast = (ctypes.create_string_buffer(64) for _ in range(2))  # each a pthread_attr_t
            for attributes in (usual, vast):
                assert libc.pthread_getattr_default_np(attributes) == 0
            # Stacks of more than there are addresses. A limit on threads would not hold for root.
            assert libc.pthread_attr_setstacksize(vast, ctypes.c_size_t(1 << 50)) == 0
            assert libc.pthread_setattr_default_np(vast) == 0
            try:
                return call()
            except OSError as error:
                return str(error)
            finally:
                libc.pthread_setattr_default_np(usual)
        '''
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            code = Code(session, source)
            print(code.call("call"), code.call("call_without_threads"), code.call("call"))
        """)
    assert said == f"True {os.strerror(errno.EAGAIN)} True\n"
