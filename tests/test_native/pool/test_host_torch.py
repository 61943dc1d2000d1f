"""The host program may import torch before there is a pool, after, or never."""

from __future__ import annotations

import pytest
from interpool_testing import printed

pytestmark = pytest.mark.long

CROSSING = """
import sys, threading, warnings
from interpool import InterpreterManager

def crossing(manager):
    # The host may import torch at this very moment, on another thread.
    import torch

    def work():
        for _ in range(20):
            with manager.acquire_session() as session:
                x = torch.arange(4.0)
                y = session.global_("torch", "mul")(x, 2)
                z = y.to_value()
                z += 1
                assert y.attr("tolist")().to_value() == [1, 3, 5, 7]
                assert session.global_("torch", "neg")(x).to_value().tolist() == [0, -1, -2, -3]
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    with manager.acquire_session() as session:
        kept = session.global_("torch", "full")([3], 7.0).to_value()
    return kept

def host_works():
    import torch

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(context, gradient):
            return 2 * context.saved_tensors[0] * gradient

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    x.register_hook(lambda gradient: seen.append(gradient.tolist()))
    (Square.apply(x) * 3).sum().backward()
    assert x.grad.tolist() == seen[0] == [6, 12]
    model = torch.nn.Linear(4, 2)
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimiser.zero_grad()
        model(torch.ones(5, 4)).square().sum().backward()
        optimiser.step()
    warnings.filterwarnings("ignore", ".*torch.jit.script. is not supported", FutureWarning)  # on 3.14
    assert torch.jit.script(model)(torch.ones(1, 4)).shape == (1, 2)
    assert tuple(torch.empty(2, 3, device="meta").sum(0).shape) == (3,)

    @torch.library.custom_op("host_test::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert double(torch.ones(2)).tolist() == [2, 2]
    results = []
    thread = threading.Thread(target=lambda: results.append(double(torch.ones(1)).item()))
    thread.start()
    thread.join()
    assert results == [2]
"""


def test_torch_before_the_pool() -> None:
    said = printed(
        CROSSING
        + """
import torch
before = torch.ones(3, requires_grad=True) * 2
with InterpreterManager(2) as manager:
    kept = crossing(manager)
    host_works()
    with manager.acquire_session() as session:
        assert session.global_("torch", "add")(before, 1).to_value().tolist() == [3, 3, 3]
before.sum().backward()
print(kept.tolist())
"""
    )
    assert said == "[7.0, 7.0, 7.0]\n"


def test_torch_after_the_pool() -> None:
    said = printed(
        CROSSING
        + """
manager = InterpreterManager(1)
assert "torch" not in sys.modules
with manager.acquire_session() as session:
    assert session.global_("torch", "ones")(2).attr("tolist")().to_value() == [1, 1]
import torch
with manager:
    kept = crossing(manager)
    host_works()
print(kept.tolist(), torch.__file__ == torch._C.__file__.rpartition("/")[0] + "/__init__.py")
"""
    )
    assert said == "[7.0, 7.0, 7.0] True\n"


def test_torch_on_a_thread_that_has_looked_for_it_when_the_pool_is_made() -> None:
    said = printed(
        CROSSING
        + """
from importlib.machinery import PathFinder
from interpool.native.pool import host_torch, manager as making

looking, go_on = threading.Event(), threading.Event()
find_spec = PathFinder.find_spec

def look(name, *rest):
    if name == "torch._C":
        looking.set()
        assert go_on.wait(120)
    return find_spec(name, *rest)

PathFinder.find_spec = look

# It goes on once the pool's thread is about to wait for it, or has not waited.
def tell(module, name):
    stock = getattr(module, name)

    def noting(*arguments):
        try:
            return stock(*arguments)
        finally:
            go_on.set()

    setattr(module, name, noting)

tell(host_torch, "ModuleLock")
tell(making, "watch_host_torch")

imports = threading.Thread(target=lambda: __import__("torch"))
imports.start()
assert looking.wait(120)
with InterpreterManager(2) as manager:
    imports.join()
    kept = crossing(manager)
    host_works()
print(kept.tolist())
"""
    )
    assert said == "[7.0, 7.0, 7.0]\n"


def test_torch_never_until_a_tensor_brings_it() -> None:
    said = printed("""
        import sys
        from interpool import InterpreterManager

        manager = InterpreterManager(1)
        with manager.acquire_session() as session:
            x = session.global_("torch", "arange")(5)
            y = session.global_("torch", "mul")(x, 3)
            assert y.attr("tolist")().to_value() == [0, 3, 6, 9, 12]
            assert session.global_("builtins", "len")([1, "two", {3: (4.0, b"5")}]).to_value() == 3
        assert "torch" not in sys.modules and "numpy" not in sys.modules
        maps = open("/proc/self/maps").read()
        print("torch/lib/libtorch_python.so" in maps, "torch/lib/libtorch_cpu.so" in maps)

        with manager.acquire_session() as session:
            tensor = session.global_("torch", "arange")(5).to_value()
        tensor += 1
        print("torch" in sys.modules, tensor.tolist())
        """)
    assert said == "False True\nTrue [1, 2, 3, 4, 5]\n"


def test_an_import_that_failed_may_be_tried_again() -> None:
    said = printed("""
        from interpool import InterpreterManager
        from interpool.native import provision
        from interpool.native.errors import ProvisioningError

        def refuse(path):
            provision.host_copy = stock
            raise ProvisioningError("no room")

        with InterpreterManager(1) as manager:
            stock, provision.host_copy = provision.host_copy, refuse
            try:
                import torch
            except ProvisioningError as error:
                print(error)
            import torch
            with manager.acquire_session() as session:
                print(session.global_("torch", "neg")(torch.ones(2)).to_value().tolist())
        """)
    assert said.splitlines()[-1] == "[-1.0, -1.0]"
