"""What counts as a change of what a model's neighbours use, and what does not."""

from __future__ import annotations

import pytest
from interpool_testing import MAKE_MODULE, pool_of

from interpool.native import InterpreterSession

# Of its own: what is done in it stays done.
manager = pool_of(1)


CODE = (
    MAKE_MODULE
    + """
def imported(name, text):
    import importlib.abc, importlib.util

    class Finder(importlib.abc.Loader):
        @staticmethod
        def find_spec(asked, *_):
            return importlib.util.spec_from_loader(name, Finder()) if asked == name else None

        def exec_module(self, made):
            exec(text, vars(made))

    sys.meta_path.insert(0, Finder)
    try:
        return importlib.import_module(name)
    finally:
        sys.meta_path.remove(Finder)


def run(code):
    import sys, types, torch, json, logging, unittest.mock, functools
    from interpool.native.inside.rebinding import Neighbourhood

    module("neighbour", "def f(): pass\\nclass C:\\n    def m(self): pass\\nflag = 1\\nhook = None\\n"
                        "def lazily():\\n    def g(): pass\\n    global f\\n    f = g")
    watched = Neighbourhood()
    watched.begin()
    names = {"module": module, "imported": imported, "torch": torch, "json": json, "sys": sys,
             "mock": unittest.mock,
             "functools": functools, "logging": logging}
    model = module("<torch_package_7>.model", "import neighbour\\n" + code, **names)
    try:
        return watched.look(), watched.look(at_once=True)
    finally:
        del sys.modules[model.__name__]
        sys.modules.pop("neighbour", None)
        sys.modules.pop("library", None)
        sys.modules.pop("other", None)
"""
)


def _found(session: InterpreterSession, code: str) -> str:
    scope = session.global_("builtins", "dict")()
    session.global_("builtins", "exec")(CODE, scope)
    first, again = scope.item("run")(code).to_value()
    assert again == "", "it is named once"
    return str(first)


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("neighbour.f = lambda: 1", "neighbour.f"),
        ("del neighbour.f", "neighbour.f"),
        ("neighbour.f = json.dumps", "neighbour.f"),
        ("neighbour.f = functools.partial(neighbour.f)", "neighbour.f"),
        ("def f(): pass\nf._cython_generator_types = set()\nneighbour.f = f", "neighbour.f"),
        ("neighbour.C.m = lambda self: 1", "neighbour.C.m"),
        ("class C(neighbour.C): pass\nneighbour.C = C", "neighbour.C"),
        ("mock.patch('neighbour.f').start()", "neighbour.f"),
        ("library = module('library', 'def g(): pass')\nlibrary.g = lambda: 1", "library.g"),
        (
            "library = module('library', 'class C:\\n    def m(self): pass')\nlibrary.C.m = lambda self: 1",
            "library.C.m",
        ),
        # Deferred until code touches it.
        (
            "import torch.distributions as d\nd.Laplace.new = lambda self: 1",
            "torch.distributions.laplace.Laplace.new",
        ),
        ("vars(neighbour).clear()", "neighbour.f"),
        (
            "imported('library', 'import neighbour\\ndef g(): pass\\ndef put(): neighbour.f = g').put()",
            "neighbour.f",
        ),
        (
            (
                "imported('library', 'import neighbour\\ndef g(): pass\\ndef put(): neighbour.f = g').put()\n"
                "imported('other', 'import library')"
            ),
            "neighbour.f",
        ),
    ],
)
def test_replaced_or_removed_code_of_others_is_named(
    session: InterpreterSession, code: str, named: str
) -> None:
    assert named in _found(session, code)


@pytest.mark.parametrize(
    "code",
    [
        "",
        "neighbour.appears = 1",
        "neighbour.flag = 2\nneighbour.hook = lambda: 1",
        "before = neighbour.f\nneighbour.f = lambda: 1\nneighbour.f = before",
        "with mock.patch('neighbour.f'):\n    neighbour.f()",
        "neighbour.lazily()",
        "imported('library', 'import neighbour\\ndef g(): pass\\nneighbour.f = g')",
        "imported('library', 'import neighbour\\nneighbour.C.m = lambda self: 1')",
        "imported('library', 'def f(): pass\\ndef g(): pass\\ndef put():\\n    global f\\n    f = g').put()",
        (
            "module('library', 'import collections, dataclasses, enum\\n@dataclasses.dataclass\\nclass A:\\n"
            '    x: int = 0\\nclass B(enum.Enum):\\n    X = 1\\nP = collections.namedtuple("P", "x")\')'
        ),
        (
            "library = module('library', 'class C: hook = None')\n"
            "class Own(library.C):\n    def m(self): pass\nlibrary.C.hook = Own()"
        ),
        # As Cython's modules do, in globals without a name.
        (
            "exec('def wrap(was):\\n    def f(): return was()\\n    f._cython_generator_types = set()\\n"
            "    return f\\nneighbour.f = wrap(neighbour.f)', {'neighbour': neighbour})"
        ),
        "import torch.distributions as d\nclass Own(d.Normal):\n    def own(self): pass\nOwn(0.0, 1.0).own()",
        "class Net(neighbour.C):\n    def m(self): return 1\nNet().m()",
        "torch.set_default_dtype(torch.float64)",
        "logging.getLogger('x').setLevel(10)\nlogging.basicConfig()",
        # As django's settings before they are configured.
        (
            "library = module('library', 'class Lazy:\\n    @property\\n"
            "    def __class__(self): raise OSError\\nsettings = Lazy()')"
        ),
    ],
)
def test_usual_changes_of_libraries_and_models_are_not_named(session: InterpreterSession, code: str) -> None:
    assert _found(session, code) == ""


@pytest.mark.parametrize("name", ["sorted", "isinstance"])
def test_a_removed_builtin_is_named_also_if_the_search_itself_needs_it(
    session: InterpreterSession, name: str
) -> None:
    code = f"import builtins\nsys.kept = {name}\ndel builtins.{name}"
    try:
        assert _found(session, code) == f"it has replaced or removed builtins.{name}"
    finally:
        scope = session.global_("builtins", "dict")()
        back = f"import builtins, sys\nbuiltins.{name} = sys.kept\ndel sys.kept"
        session.global_("builtins", "exec")(back, scope)


def test_a_removed_module_is_named_also_if_the_search_itself_needs_it(session: InterpreterSession) -> None:
    code = "kept = sys.modules.pop('json')\nimport atexit"
    try:
        assert "sys.modules['json']" in _found(session, code)
    finally:
        session.global_("builtins", "__import__")("json")
