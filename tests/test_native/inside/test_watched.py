"""Whether attributes are what they were: by what means they change, they have changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from interpool_testing import Code

from interpool.native import InterpreterManager

INSIDE = """
import types
from _interpool import watched

def function(self):
    pass

def other(self):
    pass

def reports(change, back):
    class Base:
        inherited = function
    class Class(Base):
        own = function
        static = staticmethod(function)
    module = types.ModuleType("module")
    module.name = function
    instance = Class()
    instance.mine = function
    names = dict(Base=Base, Class=Class, module=module, instance=instance, function=function, other=other)
    unchanged = watched(
        (Class, "own"), (Class, "inherited"), (Class, "static"), (Class, "missing"), (module, "name"),
        (module, "absent"), (instance, "mine"),
    )
    found = [unchanged(), unchanged()]
    exec(change, names)
    found += [unchanged(), unchanged()]
    exec(back, names)
    return found + [unchanged(), unchanged()]

def raised(*pairs):
    try:
        watched(*pairs)
    except Exception as error:
        return type(error).__name__

class Strange:
    armed = False
    @property
    def name(self):
        return 1 // (not Strange.armed)

class Counting(type):
    looks = 0
    def __getattribute__(cls, name):
        Counting.looks += name == "own"
        return super().__getattribute__(name)

class Counted(metaclass=Counting):
    own = function

def looks():
    unchanged = watched((Counted, "own"))
    unchanged()
    before = Counting.looks
    assert unchanged() and unchanged()
    return Counting.looks - before

def raised_later():
    strange = Strange()
    unchanged = watched((strange, "name"))
    Strange.armed = True
    try:
        unchanged()
    except ZeroDivisionError:
        return True
"""


@pytest.fixture(scope="module")
def code() -> Iterator[Code]:
    with InterpreterManager(1) as pool, pool.acquire_session() as session:
        yield Code(session, INSIDE)


@pytest.mark.parametrize(
    ("change", "back"),
    [
        ("Class.own = other", "Class.own = function"),
        ("Base.inherited = other", "Base.inherited = function"),
        ("Class.inherited = other", "del Class.inherited"),
        ("Class.missing = 1", "del Class.missing"),
        ("Class.__bases__ = (type('Mine', (), {}),)", "Class.__bases__ = (Base,)"),
        ("module.name = other", "module.name = function"),
        ("del module.name", "module.__dict__['name'] = function"),
        ("module.absent = 1", "del module.absent"),
        ("instance.mine = other", "instance.mine = function"),
    ],
)
def test_a_watch_reports_a_change_until_it_is_undone(code: Code, change: str, back: str) -> None:
    assert code.call("reports", change, back) == [True, True, False, False, True, True]


def test_a_watch_reports_no_changes_of_other_names(code: Code) -> None:
    assert code.call("reports", "Class.beside = 1; module.beside = 1", "del Class.beside") == [True] * 6


def test_a_class_that_has_not_changed_is_not_looked_at_again(code: Code) -> None:
    assert code.call("looks") == 0


def test_only_pairs_of_an_object_and_a_name_are_taken(code: Code) -> None:
    assert code["raised"](1).to_value() == "TypeError"
    assert code["raised"]((1, 2)).to_value() == "TypeError"


def test_an_attribute_that_raises_raises_when_it_is_looked_at(code: Code) -> None:
    assert code["raised_later"]().to_value() is True
