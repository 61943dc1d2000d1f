"""What of other packages a module needs while it is imported, read from its source."""

from __future__ import annotations

import textwrap

import pytest

from interpool.archiver_ext.packing.observe.import_time import used_at_import

HEAD = "import lib, lib.sub\nfrom lib import Thing, thing\nfrom typing import Optional, Union\n"


def used(body: str) -> dict[str, str]:
    return used_at_import(HEAD + textwrap.dedent(body), "m.py")


@pytest.mark.parametrize(
    "body",
    [
        "class Own(Thing): pass",
        "class Own(lib.Wrapper): pass",
        "class Own(object, metaclass=Thing): pass",
        "@thing\ndef f(): pass",
        "@lib.compile(mode=1)\ndef f(): pass",
        "class Own:\n    @thing\n    def f(self): pass",
        "MODE = Thing.MEMBER",
        "def f(mode=Thing.MEMBER): pass",
        "def f(*, mode=lib.Mode.MEMBER): pass",
        "NAMES = {key: value for value, key in lib.TAGS.items()}",
        "NAMES = [*thing]",
        "BOTH = lib.A | lib.B",
        "BY = {lib.A: 1}",
        "BY = {Thing}",
        "if lib.__version__ >= '2': pass",
        "if not thing: pass",
        "for each in thing: pass",
        "with lib.context: pass",
        "def f(x: Optional[Thing]): pass",
        "def f(x) -> Union[int, lib.A]: pass",
        "x: Optional[Thing] = None",
        "try:\n    thing()\nexcept ImportError: pass",
        "try:\n    import other\nexcept ImportError:\n    lib.call()",
        "alias = lib.Mode\nMEMBER = alias.MEMBER",
        "class Own:\n    mode = Thing.MEMBER",
        "found = [x for x in range(3) if thing[x]]",
        "dict(a=thing())",
    ],
)
def test_an_access_that_a_stand_in_does_not_support_is_a_use(body: str) -> None:
    found = used(body)
    assert [*found] == ["lib"]
    assert found["lib"].startswith("m.py:")


@pytest.mark.parametrize(
    "body",
    [
        "def f():\n    return Thing.MEMBER",
        "g = lambda: thing()",
        "alias = thing",
        "alias = lib.sub.thing",
        "def f(x: Thing, y: lib.A) -> lib.B: pass",
        "def f(x: list[Thing]) -> dict[str, lib.A]: pass",
        "x: Thing = None",
        "def f(mode=Thing): pass",
        "BY = {'a': lib.A, 'b': [Thing]}",
        "is_there = thing is not None",
        "own(thing, lib.A)",
        "if __name__ == '__main__':\n    thing()",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    thing()",
        "try:\n    pass\nexcept lib.Error: pass",
    ],
)
def test_an_access_that_a_stand_in_supports_is_no_use(body: str) -> None:
    assert used(body) == {}
