"""Operators of archives' models: they go with their archive, and one name is one archive's at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from archives import build_package
from interpool_testing import Code, pool_of

from interpool.native import InterpreterSession
from interpool.native.errors import RemoteError

manager = pool_of(1)


# What registers runs inside only, and not where the archive is made.
DEFINED = """
import torch

if __name__.startswith("<torch_package"):
    torch.library.define("{name}", "(Tensor x) -> Tensor")

    @torch.library.impl("{name}", "cpu")
    def scale(x):
        return x * {factor}
"""
CUSTOM = """
import torch

def scale(x: torch.Tensor) -> torch.Tensor:
    return x * {factor}

if __name__.startswith("<torch_package"):
    torch.library.custom_op("{name}", scale, mutates_args=())
"""
IN_A_LIBRARY = """
import torch

if __name__.startswith("<torch_package"):
    library = torch.library.Library("{space}", "FRAGMENT")
    library.define("{plain}(Tensor x) -> Tensor")
    library.impl("{plain}", lambda x: x * {factor}, "CPU")
"""
KERNEL_ONLY = """
import torch

if __name__.startswith("<torch_package"):
    if not hasattr(torch.ops.{space}, "{plain}"):
        torch.library.define("{name}", "(Tensor x) -> Tensor")

    @torch.library.impl("{name}", "cpu")
    def scale(x):
        return x * {factor}
"""
MODEL = """
def make():
    return Model()

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.{space}.{plain}(x)
"""
ALL = pytest.mark.parametrize("source", [DEFINED, CUSTOM, IN_A_LIBRARY, KERNEL_ONLY])

PACKAGES = """
import torch
from interpool.native.inside import packages, refusals

def ask(path):
    return packages.load_object(path, "model", "model.pkl")(torch.ones(1)).item()

def close(path):
    packages.close_package(path)

def conflict():
    return refusals.take_conflict("/")

def here(space, plain):
    return hasattr(getattr(torch.ops, space), plain)
"""


class Packages:
    """Archives in one interpreter that have a model each, with an operator of its own."""

    def __init__(self, session: InterpreterSession, directory: Path, source: str, name: str) -> None:
        self.call = Code(session, PACKAGES).call
        self._directory = directory
        self._source = source
        space, _, plain = name.partition("::")
        self._names = {"name": name, "space": space, "plain": plain}

    def is_there(self) -> bool:
        return bool(self.call("here", self._names["space"], self._names["plain"]))

    def build(self, factor: int) -> str:
        text = (self._source + MODEL).format(factor=factor, **self._names)
        return str(build_package(self._directory / f"x{factor}.pt", {"op_model.py": text}, "op_model:make"))


@pytest.fixture
def packages(
    session: InterpreterSession, tmp_path: Path, source: str, request: pytest.FixtureRequest
) -> Iterator[Packages]:
    name = f"native_test_packed::op{abs(hash(request.node.name))}"
    made = Packages(session, tmp_path, source, name)
    yield made
    for path in tmp_path.glob("*.pt"):
        made.call("close", str(path))


@pytest.mark.long
@ALL
def test_a_closed_archives_operator_is_gone_and_may_be_defined_again(packages: Packages) -> None:
    one = packages.build(2)
    for _ in range(3):
        assert packages.call("ask", one) == 2
        packages.call("close", one)
        assert not packages.is_there()
    other = packages.build(3)
    assert packages.call("ask", other) == 3
    assert packages.call("conflict") == ""


@ALL
def test_an_open_archives_operator_is_not_replaced_by_anothers(packages: Packages) -> None:
    one, other = packages.build(2), packages.build(3)
    assert packages.call("ask", one) == 2
    for _ in range(2):
        with pytest.raises(RemoteError, match="is registered in this interpreter by") as caught:
            packages.call("ask", other)
        assert one in caught.value.message
        assert other in caught.value.message
        packages.call("close", other)
        assert packages.call("conflict") != ""
        assert packages.call("ask", one) == 2
    packages.call("close", one)
    assert packages.call("ask", other) == 3


CALLS = [
    "torch.library.register_fake('{name}', lambda x: torch.empty_like(x))",
    "torch.library.register_autograd('{name}', lambda context, gradient: gradient)",
    "torch.library.register_kernel('{name}', 'cpu', lambda x: x * {factor})",
]


@pytest.mark.parametrize("source", [CUSTOM + f"    {call}\n" for call in CALLS])
def test_registrations_for_an_operator_go_with_it(packages: Packages) -> None:
    one = packages.build(2)
    for _ in range(2):
        assert packages.call("ask", one) == 2
        packages.call("close", one)


@pytest.mark.parametrize("source", [CUSTOM])
def test_a_model_may_define_its_own_operator_anew(packages: Packages) -> None:
    packages._source = CUSTOM + "    torch.library.custom_op('{name}', lambda x: x * {factor} * 10, "
    packages._source += "mutates_args=(), schema='(Tensor x) -> Tensor')\n"
    one = packages.build(2)
    assert packages.call("ask", one) == 20
