"""What of other packages a module needs while it is imported, read from its source."""

from __future__ import annotations

import textwrap

import pytest

from interpool.archiver_ext.packing.observe.import_time import used_at_import
from interpool.archiver_ext.packing.observe.imports import find_imports

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
def test_what_a_stand_in_cannot_do_is_a_use(body: str) -> None:
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
def test_what_a_stand_in_can_do_is_none(body: str) -> None:
    assert used(body) == {}


def test_annotations_that_are_not_evaluated_are_none() -> None:
    source = "from __future__ import annotations\n" + HEAD
    body = "def f(x: Optional[Thing]): pass\nx: Optional[Thing] = None\nclass C:\n    y: Thing | None"
    assert used_at_import(source + body, "m.py") == {}
    assert [*used_at_import(source + "x: int = thing()", "m.py")] == ["lib"]


def test_the_line_is_the_first_that_uses_it() -> None:
    assert used("\nA = 1\nB = thing()\nC = thing()") == {"lib": "m.py:6: B = thing()"}
    assert used_at_import(b"def (", "m.py") == {}


def test_a_line_is_the_one_that_python_counts_whatever_the_source_holds() -> None:
    source = "import lib\n# one\x0ctwo\x0bthree\x1cfour\x85five\u2028six\r\nclass Own(lib.Wrapper): pass\n"
    assert used_at_import(source, "m.py") == {"lib": "m.py:3: class Own(lib.Wrapper): pass"}
    assert used_at_import(source.encode(), "m.py") == {"lib": "m.py:3: class Own(lib.Wrapper): pass"}
    (site, *_) = find_imports("# one\x0ctwo\nimport lib\n", "m", is_package=False)
    assert (site.line, site.text) == (2, "import lib")
