"""Operators and kernels that Python code registers: each interpreter has its own."""

from __future__ import annotations

import pytest
import torch
from interpool_testing import Code, every_interpreter, together

from interpool.native import InterpreterManager, InterpreterSession
from interpool.native.errors import RemoteError

CUSTOM_OP = """
import torch

def define(name, k):
    @torch.library.custom_op(name, mutates_args=())
    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * k

    @scale.register_fake
    def _(x):
        return torch.empty_like(x)

    scale.register_autograd(lambda context, gradient: gradient * k)

def operator(name):
    namespace, _, function = name.partition("::")
    return getattr(getattr(torch.ops, namespace), function)

def use(name, value=1.0):
    return operator(name)(torch.full((3,), value)).tolist()

def use_often(name, expected, times):
    function, x = operator(name), torch.ones(3)
    return sum(function(x).tolist() == [expected] * 3 for _ in range(times))

def gradient(name):
    x = torch.ones(3, requires_grad=True)
    operator(name)(x).sum().backward()
    return x.grad.tolist()

def fake(name):
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        return tuple(operator(name)(torch.empty(7, 2)).shape)

def check(name):
    torch.library.opcheck(operator(name), (torch.ones(3, requires_grad=True),))

def define_schema(schema):
    global library
    library = torch.library.Library("native_test_schemas", "FRAGMENT")
    library.define(schema)
"""


def test_one_name_has_a_body_of_its_own_in_each_interpreter_at_once(manager: InterpreterManager) -> None:
    name = "native_test::scale"
    with every_interpreter(manager, 2) as (a, b):
        one, other = Code(a, CUSTOM_OP), Code(b, CUSTOM_OP)
        one["define"](name, 2)
        assert one.call("use", name) == [2, 2, 2]
        with pytest.raises(RemoteError) as caught:
            other["use"](name)
        assert caught.value.type_name == "NotImplementedError"
        assert name in caught.value.message
        assert f"interpreter {b.interpreter_id} did not" in caught.value.message

        other["define"](name, 3)
        counts = together(
            [
                lambda: one.call("use_often", name, 2.0, 2000),
                lambda: other.call("use_often", name, 3.0, 2000),
            ]
        )
        assert counts == [2000, 2000]
        assert (one.call("gradient", name), other.call("gradient", name)) == ([2, 2, 2], [3, 3, 3])
        assert (one.call("fake", name), other.call("fake", name)) == ((7, 2), (7, 2))


def test_an_operator_of_the_hosts_and_one_of_an_interpreters_share_a_name(
    session: InterpreterSession,
) -> None:
    name = "native_test::scale_of_the_hosts"
    here: dict[str, object] = {}
    exec(CUSTOM_OP, here)
    here["define"](name, 5)  # type: ignore[operator]
    inside = Code(session, CUSTOM_OP)
    with pytest.raises(RemoteError, match=f"NotImplementedError.*{name}"):
        inside["use"](name)
    inside["define"](name, 7)
    assert inside.call("use", name) == [7, 7, 7]
    assert here["use"](name) == [5, 5, 5]  # type: ignore[operator]
    assert here["gradient"](name) == [5, 5, 5]  # type: ignore[operator]


def test_an_operator_defined_by_an_interpreter_is_the_hosts_when_the_host_defines_it(
    session: InterpreterSession,
) -> None:
    name = "native_test::scale_of_an_interpreters"
    inside = Code(session, CUSTOM_OP)
    inside["define"](name, 2)
    here: dict[str, object] = {}
    exec(CUSTOM_OP, here)
    with pytest.raises(NotImplementedError, match=name):
        here["use"](name)  # type: ignore[operator]
    here["define"](name, 3)  # type: ignore[operator]
    assert here["use"](name) == [3, 3, 3]  # type: ignore[operator]
    assert inside.call("use", name) == [2, 2, 2]


def test_torchs_own_check_of_operators_passes_in_every_interpreter(manager: InterpreterManager) -> None:
    name = "native_test::checked"
    with every_interpreter(manager, 2) as sessions:
        for k, session in enumerate(sessions):
            code = Code(session, CUSTOM_OP)
            code["define"](name, k + 2)
            code["check"](name)


def test_a_name_with_another_schema_is_refused(manager: InterpreterManager) -> None:
    with every_interpreter(manager, 2) as (a, b):
        one, other = Code(a, CUSTOM_OP), Code(b, CUSTOM_OP)
        one["define_schema"]("op(Tensor x) -> Tensor")
        other["define_schema"]("op(Tensor x) -> Tensor")
        third = Code(b, CUSTOM_OP)
        one["define_schema"]("changing(Tensor x) -> Tensor")
        with pytest.raises(RemoteError) as caught:
            third["define_schema"]("changing(Tensor x, int k) -> Tensor")
    message = caught.value.message
    assert "native_test_schemas::changing(Tensor x) -> Tensor" in message
    assert "native_test_schemas::changing(Tensor x, int k) -> Tensor" in message


OVERRIDE = """
import torch

def override():
    global library
    library = torch.library.Library("aten", "IMPL")
    library.impl("celu", lambda x, alpha=1.0: torch.full_like(x, 42.0), "CPU")

def undo():
    library._destroy()

def celu():
    return torch.celu(torch.tensor([-1.0])).item()
"""
NATIVE_CELU = torch.celu(torch.tensor([-1.0])).item()


def test_an_override_of_a_native_operator_stays_in_its_interpreter(manager: InterpreterManager) -> None:
    with every_interpreter(manager, 3) as sessions:
        one, other, late = (Code(session, OVERRIDE) for session in sessions)
        one["override"]()
        try:
            assert one.call("celu") == 42
            assert [code.call("celu") for code in (other, late)] == [NATIVE_CELU] * 2
            assert torch.celu(torch.tensor([-1.0])).item() == NATIVE_CELU
            other["override"]()
            assert other.call("celu") == 42
        finally:
            one["undo"]()
        assert one.call("celu") == NATIVE_CELU
        assert other.call("celu") == 42
        other["undo"]()
        assert other.call("celu") == NATIVE_CELU


def test_an_override_of_the_hosts_stays_the_hosts(session: InterpreterSession) -> None:
    library = torch.library.Library("aten", "IMPL")
    inside = Code(session, "import torch\ndef selu(): return torch.selu(torch.tensor([1.0])).item()")
    native = inside.call("selu")
    library.impl("selu", lambda x: torch.full_like(x, 42.0), "CPU")
    try:
        assert torch.selu(torch.tensor([1.0])).item() == 42
        assert inside.call("selu") == native
    finally:
        library._destroy()
    assert torch.selu(torch.tensor([1.0])).item() == native


FEATURES = """
import torch

def meta():
    return tuple(torch.linalg.inv(torch.empty(3, 3, device="meta")).shape)

def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        return tuple((torch.ones(3, 4) @ torch.ones(4, 5)).shape)

def dispatch_mode():
    from torch.utils._python_dispatch import TorchDispatchMode
    class Count(TorchDispatchMode):
        seen = []
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.append(str(function))
            return function(*args, **(kwargs or {}))
    with Count():
        torch.ones(2) + 1
    return tuple(Count.seen)

def subclass():
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return ("loud", getattr(function, "__name__", "?"))
    return torch.add(torch.ones(1).as_subclass(Loud), 1)

def function():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return x * x
        @staticmethod
        def backward(context, gradient):
            (x,) = context.saved_tensors
            return 2 * x * gradient
    x = torch.tensor([3.0], requires_grad=True)
    Square.apply(x).backward()
    return x.grad.item()

def failing_backward():
    class Fail(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 1
        @staticmethod
        def backward(context, gradient):
            raise LookupError("in backward")
    try:
        Fail.apply(torch.ones(1, requires_grad=True)).backward()
    except LookupError as error:
        return str(error)

def hooks():
    x, seen = torch.ones(1, requires_grad=True), []
    x.register_hook(lambda gradient: seen.append(gradient.item()))
    (x * 2).backward()
    return seen

def checkpoint():
    from torch.utils.checkpoint import checkpoint
    x = torch.ones(1, requires_grad=True)
    checkpoint(lambda y: y * y, x, use_reentrant=True).backward()
    return x.grad.item()

def vmap():
    return torch.func.vmap(torch.sum)(torch.ones(2, 3)).tolist()

def grad():
    return torch.func.grad(lambda x: (x**2).sum())(torch.ones(2)).tolist()

def script():
    return torch.jit.script(torch.nn.Linear(2, 3))(torch.ones(1, 2)).shape[1]

def trace():
    return torch.jit.trace(torch.nn.Linear(2, 3), torch.ones(1, 2))(torch.ones(1, 2)).shape[1]

def export():
    program = torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),))
    return program.module()(torch.ones(1, 2)).shape[1]

def compiled():
    return torch.compile(lambda x: x * 2 + 1, backend="eager")(torch.ones(2)).tolist()
"""

EXPECTED = {
    "meta": (3, 3),
    "fake": (3, 5),
    "dispatch_mode": ("aten.ones.default", "aten.add.Tensor"),
    "subclass": ("loud", "add"),
    "function": 6.0,
    "failing_backward": "in backward",
    "hooks": [2.0],
    "checkpoint": 2.0,
    "vmap": [3.0, 3.0],
    "grad": [2.0, 2.0],
    "script": 3,
    "trace": 3,
    "export": 3,
    "compiled": [3.0, 3.0],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("feature", EXPECTED)
@pytest.mark.parametrize("where", ["the calling thread", "a thread that the model starts"])
def test_what_of_torch_is_written_in_python_works_in_two_interpreters_at_once(
    manager: InterpreterManager, feature: str, where: str
) -> None:
    threaded = """
def on_thread(work):
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()
    """
    with every_interpreter(manager, 2) as sessions:
        codes = [Code(session, FEATURES + threaded) for session in sessions]

        def use(code: Code) -> object:
            if where == "the calling thread":
                return code.call(feature)
            return code.call("on_thread", code[feature])

        assert together([lambda code=code: use(code) for code in codes]) == [EXPECTED[feature]] * 2  # type: ignore[misc]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("feature", EXPECTED)
def test_what_of_torch_is_written_in_python_works_in_a_host_beside_a_pool(
    manager: InterpreterManager, feature: str
) -> None:
    names: dict[str, object] = {}
    exec(FEATURES, names)
    work = names[feature]
    assert callable(work)
    assert work() == EXPECTED[feature]
    assert together([work]) == [EXPECTED[feature]]


def test_a_kernel_of_python_runs_on_a_thread_that_the_model_starts(session: InterpreterSession) -> None:
    code = Code(
        session,
        CUSTOM_OP
        + """
def on_thread(name):
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(2) as executor:
        return list(executor.map(lambda _: use(name) + gradient(name), range(4)))
    """,
    )
    code["define"]("native_test::threaded", 2)
    assert code.call("on_thread", "native_test::threaded") == [[2.0] * 6] * 4
