"""Operators and kernels that Python code registers: each interpreter has its own."""

from __future__ import annotations

import pytest
import torch
from interpool_testing import Code, every_interpreter, together

from interpool.native import InterpreterManager, InterpreterSession
from interpool.native.errors import RemoteError

CUSTOM_OP = """
import sys, torch

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

def define_schema(schema):
    library = torch.library.Library("native_test_schemas", "FRAGMENT")
    library.define(schema)
    # Stays, as a model's does: another interpreter has looked for the name, and torch.ops there remembers it.
    sys.modules.setdefault("native_test_libraries", []).append(library)
"""


@pytest.mark.long
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
                lambda: one.call("use_often", name, 2.0, 300),
                lambda: other.call("use_often", name, 3.0, 300),
            ]
        )
        assert counts == [300, 300]
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

def override(name, key):
    global library
    library = torch.library.Library("aten", "IMPL")
    library.impl(name, lambda x, *_, **__: torch.full_like(x, 42.0), key)

def undo():
    library._destroy()

def answer(name):
    x = -torch.ones(1, 1, 1, 1)
    arguments = (x, x, x) if name == "scaled_dot_product_attention" else (x,)
    with torch.autocast("cpu", enabled=name == "elu"):
        return getattr(torch.ops.aten, name)(*arguments).item()
"""


@pytest.mark.parametrize(
    ("name", "key", "native"),
    [
        ("celu", "CPU", torch.celu(torch.tensor([-1.0])).item()),
        ("hardswish", "Autograd", torch.nn.functional.hardswish(torch.tensor([-1.0])).item()),
        # No key, which is CompositeImplicitAutograd: for all keys that have nothing of their own.
        ("scaled_dot_product_attention", "", -1.0),
        ("elu", "AutocastCPU", torch.nn.functional.elu(torch.tensor([-1.0])).item()),
    ],
)
def test_an_override_of_a_native_operator_stays_in_its_interpreter(
    manager: InterpreterManager, name: str, key: str, native: float
) -> None:
    here: dict[str, object] = {}
    exec(OVERRIDE, here)
    with every_interpreter(manager, 3) as sessions:
        one, other, late = (Code(session, OVERRIDE) for session in sessions)
        one["override"](name, key)
        try:
            assert one.call("answer", name) == 42
            assert [code.call("answer", name) for code in (other, late)] == [native] * 2
            assert here["answer"](name) == native  # type: ignore[operator]
            other["override"](name, key)
            assert other.call("answer", name) == 42
        finally:
            one["undo"]()
        assert one.call("answer", name) == native
        assert other.call("answer", name) == 42
        other["undo"]()
        assert other.call("answer", name) == native


def test_an_operator_needs_no_kernel_for_what_another_interpreter_has_one(
    manager: InterpreterManager,
) -> None:
    name = "native_test::scale_without_gradient"
    source = """
    import torch
    def define():
        torch.library.define("native_test::scale_without_gradient", "(Tensor x) -> Tensor")
        torch.library.impl("native_test::scale_without_gradient", "cpu", lambda x: x * 3)
    """
    with every_interpreter(manager, 2) as (a, b):
        one, other, plain = Code(a, CUSTOM_OP), Code(b, CUSTOM_OP), Code(b, source)
        one["define"](name, 2)  # with one for autograd
        plain["define"]()
        assert (one.call("use", name), other.call("use", name)) == ([2] * 3, [3] * 3)
        assert one.call("gradient", name) == [2] * 3


def test_a_kernel_that_is_taken_back_leaves_the_one_before_it(session: InterpreterSession) -> None:
    source = """
    import torch
    libraries = {}
    def override(value):
        libraries[value] = torch.library.Library("aten", "IMPL")
        libraries[value].impl("hardsigmoid", lambda x: torch.full_like(x, value), "CPU")
    def undo(value):
        libraries.pop(value)._destroy()
    def ask():
        return torch.ops.aten.hardsigmoid(torch.zeros(1)).item()
    """
    code = Code(session, source)
    for value in (1.0, 2.0, 3.0):
        code["override"](value)
    found = [code.call("ask")]
    for value in (2.0, 3.0, 1.0):
        code["undo"](value)
        found.append(code.call("ask"))
    assert found == [3.0, 3.0, 1.0, 0.5]


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
