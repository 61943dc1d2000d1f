"""What of torch is written in Python: in interpreters, on threads of the models', and in the host."""

from __future__ import annotations

import pytest
from interpool_testing import Code, every_interpreter, together

from interpool.native import InterpreterManager, InterpreterSession

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
@pytest.mark.parametrize("where", ["the calling thread", "a thread that the model starts"])
def test_the_python_parts_of_torch_work_in_two_interpreters_at_once(
    manager: InterpreterManager, where: str
) -> None:
    threaded = """
def on_thread(work):
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()
    """
    with every_interpreter(manager, 2) as sessions:
        codes = [Code(session, FEATURES + threaded) for session in sessions]

        def use(code: Code) -> dict[str, object]:
            if where == "the calling thread":
                return {feature: code.call(feature) for feature in EXPECTED}
            return {feature: code.call("on_thread", code[feature]) for feature in EXPECTED}

        works = [lambda code=code: use(code) for code in codes]  # type: ignore[misc]
        assert together(works, timeout=600) == [EXPECTED] * 2  # the compiler is imported, and takes its time


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("feature", EXPECTED)
def test_the_python_parts_of_torch_work_in_a_host_beside_a_pool(
    manager: InterpreterManager, feature: str
) -> None:
    names: dict[str, object] = {}
    exec(FEATURES, names)
    work = names[feature]
    assert callable(work)
    assert work() == EXPECTED[feature]
    assert together([work]) == [EXPECTED[feature]]


INDUCTOR = """
import ctypes, os
import torch

ADDRESS = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"

def hide(value):
    os.environ[ADDRESS] = value
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return os.environ.pop(ADDRESS), getenv(ADDRESS.encode())

def compiled(k):
    def f(x):
        return torch.relu(x * k + 1).sum(dim=1) + x.sin().mean()
    x = torch.linspace(-2, 2, 64).reshape(8, 8)
    fast = torch.compile(f)
    return all(torch.allclose(fast(x + i), f(x + i), atol=1e-5) for i in range(20))

def trained():
    net = torch.nn.Linear(8, 8)
    torch.compile(net)(torch.ones(4, 8)).sum().backward()
    return torch.equal(net.bias.grad, torch.full((8,), 4.0))
"""


def test_inductors_variables_for_its_libraries_stay_in_its_interpreter(session: InterpreterSession) -> None:
    value, seen = Code(session, INDUCTOR).call("hide", "42")
    assert value == "42"
    assert seen != b"42"


@pytest.mark.long
def test_inductor_compiles_in_two_interpreters_at_once(manager: InterpreterManager) -> None:
    with every_interpreter(manager, 2) as sessions:
        codes = [Code(session, INDUCTOR) for session in sessions]
        for k in (2.5, 3.5):
            assert together([lambda c=c, k=k: c.call("compiled", k) for c in codes]) == [True, True]  # type: ignore[misc]
        assert together([lambda c=c: c.call("trained") for c in codes]) == [True, True]  # type: ignore[misc]
