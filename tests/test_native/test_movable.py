"""Objects that move: made once, materialised in any interpreter, their tensors over one memory."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from archives import build_scale
from interpool_testing import Code, every_interpreter, together
from waiting import wait_for

from interpool.native import InterpreterManager, InterpreterSession, movable
from interpool.native.errors import ConversionError, RemoteError

if TYPE_CHECKING:
    from pathlib import Path

NET = """
import weakref
import torch

alive = weakref.WeakSet()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        alive.add(self)
        self.first = torch.nn.Linear(4, 4, bias=False)
        self.tied = torch.nn.Linear(4, 4, bias=False)
        self.tied.weight = self.first.weight
        self.register_buffer("count", torch.zeros(1))
        self.row = self.first.weight.detach()[1]
        self.notes = ["plain", {"k": 1}]

    def __setstate__(self, state):
        super().__setstate__(state)
        alive.add(self)

    @torch.no_grad()
    def forward(self, x):
        self.count += 1
        return self.tied(x)

def how_many():
    import gc
    gc.collect()
    return len(alive)

def make():
    return Net()

def facts(net):
    return {
        "parameter": type(net.first.weight) is torch.nn.Parameter and net.first.weight.requires_grad,
        "tied": net.tied.weight is net.first.weight,
        "view": net.row.data_ptr() == net.first.weight.data_ptr() + 16,
        "notes": net.notes,
        "names": [name for name, _ in net.named_parameters()] + [name for name, _ in net.named_buffers()],
    }
"""
FACTS = {
    "parameter": True,
    "tied": True,
    "view": True,
    "notes": ["plain", {"k": 1}],
    "names": ["first.weight", "count"],
}


class Counted(torch.nn.Module):
    """Sets its own state."""

    times = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.times += 1


class Remade(torch.nn.Module):
    """Is made anew, without a state."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __reduce__(self) -> tuple[type[Remade], tuple[int]]:
        return Remade, (self.size,)


@pytest.fixture(scope="module", autouse=True)
def net_everywhere(manager: InterpreterManager) -> None:
    manager.register_module_source("moved_net", NET)


def test_an_object_of_one_interpreter_is_materialised_in_all(manager: InterpreterManager) -> None:
    with manager.acquire_session(timeout=60) as session:
        net = session.global_("moved_net", "make")()
        weight = net.attr("first").attr("weight").to_value()
        moved = session.create_movable(net)
    expected = torch.ones(4) @ weight.detach().T
    with every_interpreter(manager) as sessions:
        for session in sessions:
            copy = session.from_movable(moved)
            assert session.is_owner(copy)
            assert session.global_("moved_net", "facts")(copy).to_value() == FACTS
            assert torch.equal(copy(torch.ones(4)).to_value(), expected)
            assert copy.attr("first").attr("weight").to_value().data_ptr() == weight.data_ptr()
    # All counted in one buffer.
    with moved.acquire_session(timeout=60) as session:
        assert session.self.attr("count").to_value().item() == len(manager)


def test_a_module_of_the_hosts_moves_into_the_pool(manager: InterpreterManager) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 2)).eval()
    moved = manager.create_movable(model)
    inputs = [torch.rand(3, 5) for _ in range(16)]
    answers = together([partial(moved, x) for x in inputs])
    for x, answer in zip(inputs, answers, strict=True):
        assert torch.equal(answer.detach(), model(x).detach())
    with torch.no_grad():
        model[2].weight.zero_()
        model[2].bias.fill_(3)
    assert moved(inputs[0]).detach().tolist() == [[3.0, 3.0]] * 3


def test_modules_move_with_the_names_that_code_asks_with_and_their_own_ways_of_being_pickled() -> None:
    data, tensors, _ = movable.dump([torch.nn.Linear(2, 2), Counted(), Remade(3)])
    linear, counted, remade = movable.load(data, tensors)
    assert all(name is sys.intern(str(name)) for name in vars(linear))
    assert list(linear._parameters) == ["weight", "bias"]
    assert all(name is sys.intern(str(name)) for name in linear._parameters)
    assert counted.times == 1
    assert remade.size == 3


def test_an_object_of_a_package_moves_with_the_code_of_its_archive(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    package = manager.load_package(build_scale(tmp_path / "scale.pt", 3))
    with package.load_pickle("model", "model.pkl").acquire_session(timeout=60) as session:
        session.global_("builtins", "setattr")(session.self, "mark", "changed")
        moved = session.create_movable(session.self)
    del package
    (tmp_path / "scale.pt").unlink()  # what was opened stays as it was
    with every_interpreter(manager) as sessions:
        for session in sessions:
            copy = session.from_movable(moved)
            assert copy.attr("mark").to_value() == "changed"
            assert copy(torch.ones(4)).to_value().tolist() == [3.0] * 4


@pytest.mark.long
def test_copies_are_made_when_first_needed_and_go_when_unloaded(manager: InterpreterManager) -> None:
    with every_interpreter(manager) as sessions:
        counts = {s.interpreter_id: s.global_("moved_net", "how_many") for s in sessions}
        before = {number: count().to_value() for number, count in counts.items()}

        def more() -> list[int]:
            return [counts[number]().to_value() - before[number] for number in counts]

        moved = sessions[0].create_movable(sessions[0].global_("moved_net", "make")())
        for session in sessions[:3]:
            session.from_movable(moved)
        wait_for(lambda: more() == [1, 1, 1, 0], "the copies")
        # One copy in an interpreter, however often it is asked for.
        first = sessions[1].from_movable(moved)
        first.attr("notes").attr("append")("mine")
        assert sessions[1].from_movable(moved).attr("notes").to_value()[-1] == "mine"
        del first
        moved.unload(sessions[1].interpreter_id)
        wait_for(lambda: more() == [1, 0, 1, 0], "the copies")
        assert sessions[1].from_movable(moved).attr("notes").to_value() == ["plain", {"k": 1}]
        moved.unload()
        wait_for(lambda: more() == [0, 0, 0, 0], "the copies")
        sessions[3].from_movable(moved)
        wait_for(lambda: more() == [0, 0, 0, 1], "the copies")
        del moved
        wait_for(lambda: more() == [0, 0, 0, 0], "the copies")


def test_an_unloaded_object_of_a_package_is_made_anew(manager: InterpreterManager, tmp_path: Path) -> None:
    model = manager.load_package(build_scale(tmp_path / "scale.pt", 3)).load_pickle("model", "model.pkl")
    with model.acquire_session(timeout=60) as session:
        session.self.attr("weight").attr("data").attr("fill_")(5)
        assert session.self(torch.ones(4)).to_value().tolist() == [5.0] * 4
        model.unload(session.interpreter_id)
        assert session.from_movable(model)(torch.ones(4)).to_value().tolist() == [3.0] * 4
        assert session.self(torch.ones(4)).to_value().tolist() == [5.0] * 4  # as long as it lasts


def test_an_object_that_pickle_refuses_is_named(
    manager: InterpreterManager, session: InterpreterSession
) -> None:
    with pytest.raises(ConversionError, match=r"a lock cannot be moved to other interpreters: .*pickle"):
        manager.create_movable(threading.Lock())
    code = Code(session, "lock = __import__('threading').Lock()\nfunction = lambda: 1")
    with pytest.raises(ConversionError, match="a lock cannot be moved"):
        session.create_movable(code["lock"])
    with pytest.raises(ConversionError, match="a function cannot be moved"):
        manager.create_movable(code["function"])


def test_an_object_whose_class_the_program_itself_defines_is_refused_with_the_way_out(
    manager: InterpreterManager,
) -> None:
    of_the_program = type("Net", (torch.nn.Linear,), {"__module__": "__main__"})
    with pytest.raises(ConversionError, match=r"Net is defined in the program itself .*models\.py"):
        manager.create_movable(of_the_program(1, 1))


def test_an_object_whose_class_is_missing_elsewhere_says_so_there(manager: InterpreterManager) -> None:
    with every_interpreter(manager, 2) as (one, other):
        Code(
            one,
            """
            import sys, types
            module = sys.modules["only_here"] = types.ModuleType("only_here")
            exec("class Thing: pass", module.__dict__)
            """,
        )
        moved = one.create_movable(one.global_("only_here", "Thing")())
        assert one.from_movable(moved).has_attr("__dict__")
        with pytest.raises(RemoteError, match="ModuleNotFoundError: No module named 'only_here'"):
            other.from_movable(moved)
        assert other.from_value(1).to_value() == 1


@pytest.mark.long
def test_a_missing_gpu_is_an_error_only_in_code_that_needs_it(manager: InterpreterManager) -> None:
    manager.register_module_source(
        "moved_away",
        """
import torch
class Away:
    def __init__(self):
        self.weight, self.device = torch.ones(2), torch.device("cuda:99")
    def __setstate__(self, state):
        self.weight = state["weight"].to(state["device"])
""",
    )
    with pytest.raises(Exception) as here:  # noqa: PT011 - whichever it is, with whichever words
        torch.ones(2).to("cuda:99")
    with every_interpreter(manager, 2) as sessions:
        moved = sessions[0].create_movable(sessions[0].global_("moved_away", "Away")())
        named = manager.create_movable(torch.device("cuda:99"))
        for session in sessions:
            with pytest.raises(RemoteError) as caught:
                session.from_movable(moved)
            assert caught.value.type_name == type(here.value).__name__
            assert caught.value.message == str(here.value)
            # A name crosses, and who needs no GPU goes on.
            assert session.from_movable(named).attr("__str__")().to_value() == "cuda:99"
            assert session.from_value(torch.ones(2)).attr("sum")().attr("item")().to_value() == 2
