"""What counts as a trace that a model leaves in what all models of its interpreter share."""

from __future__ import annotations

import pytest
from interpool_testing import MAKE_MODULE, pool_of

from interpool.native import InterpreterSession

# Of its own: what is done in it stays done.
manager = pool_of(1)


CODE = (
    MAKE_MODULE
    + """
def run(code, undo):
    import builtins, sys, types, torch, json, functools, weakref, threading, copyreg, typing, gc
    from interpool.native.inside.rebinding import Neighbourhood

    module("neighbour", "def f(x=1): return 1\\nclass C:\\n    def m(self): return 1\\n"
           "    @staticmethod\\n    def s(): return 1\\n    @property\\n    def p(self): return 1\\n"
           "registry = {}\\nhooks = []\\nflag = False\\nbase = C()\\n"
           "import functools\\n@functools.singledispatch\\ndef dispatch(x): return 1\\n"
           "@functools.lru_cache\\ndef cached(x): return x\\n")
    watched = Neighbourhood()
    watched.begin()
    model = module(
        "<torch_package_7>.model",
        "import builtins, sys, torch, json, functools, weakref, threading, copyreg, typing, gc, neighbour\\n"
        "def f(*_): return 2\\nclass Mine:\\n    def m(self): return 2\\n" + code)
    def look():
        found = watched.look_thoroughly()
        return watched.look(at_once=True) or (found.text if found else "")

    try:
        return look(), look()
    finally:
        exec(undo, vars(model))
        del sys.modules[model.__name__], sys.modules["neighbour"]
        vars(model).clear()
"""
)


DUE_CODE = """
def due():
    from interpool.native.inside import rebinding

    class Clock:
        now = 1000.0
        def monotonic(self):
            return self.now

    real, clock = rebinding.time, Clock()
    rebinding.time, rebinding.traces.all_traces, all_traces = clock, list, rebinding.traces.all_traces
    try:
        watched = rebinding.Neighbourhood()
        looks = []
        for _ in range(2):
            loaded = clock.now
            watched.begin()
            watched.look_thoroughly()
            while clock.now < loaded + 100:
                clock.now += 0.5
                if watched.thorough_look_is_due:
                    looks.append(clock.now - loaded)
                    watched.look_thoroughly()
        return looks
    finally:
        rebinding.time, rebinding.traces.all_traces = real, all_traces
"""


def test_a_look_is_due_soon_after_a_load_and_then_less_and_less_often(session: InterpreterSession) -> None:
    scope = session.global_("builtins", "dict")()
    session.global_("builtins", "exec")(DUE_CODE, scope)
    after_each_load = [1, 2, 4, 8, 16, 32, 52, 72, 92]
    assert scope.item("due")().to_value() == after_each_load * 2


def _found(session: InterpreterSession, code: str, undo: str = "") -> tuple[str, str]:
    scope = session.global_("builtins", "dict")()
    session.global_("builtins", "exec")(CODE, scope)
    first, again = scope.item("run")(code, undo).to_value()
    return str(first), str(again)


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "undo", "named"),
    [
        ("neighbour.Mine = Mine", "", "neighbour.Mine (model.Mine)"),
        ("neighbour.registry['a'] = Mine", "", "neighbour.registry (model.Mine)"),
        ("neighbour.hooks.append(f)", "", "neighbour.hooks (model.f, "),
        ("neighbour.base.one = Mine()", "", "neighbour.base (model.Mine)"),
        ("neighbour.hooks.append(sys.modules[__name__])", "", "neighbour.hooks (model"),
        ("neighbour.dispatch.register(int, f)", "", "neighbour.dispatch (model.f, "),
        (
            "import abc\nclass Any(abc.ABC): pass\nneighbour.dispatch.register(Any, f)",
            "",
            "neighbour.dispatch",
        ),
        ("neighbour.registry[neighbour.C] = Mine", "", "neighbour.registry (model.Mine)"),
        ("neighbour.C.more = f", "", "neighbour.C.more"),
        ("builtins.theirs = f", "del builtins.theirs", "builtins.theirs (model.f, "),
        (
            "sys.modules['__main__'].Mine = Mine",
            "del sys.modules['__main__'].Mine",
            "__main__.Mine (model.Mine)",
        ),
        (
            "handle = torch.nn.modules.module.register_module_forward_hook(f)",
            "handle.remove()",
            "torch.nn.modules.module._global_forward_hooks (model.f, ",
        ),
        (
            "copyreg.pickle(neighbour.C, f)",
            "del copyreg.dispatch_table[neighbour.C]",
            "copyreg.dispatch_table (model.f, ",
        ),
        (
            "import codecs\ndef find(name): return None\ncodecs.register(find)",
            "codecs.unregister(find)",
            "_codecs.register (model.find, ",
        ),
        (
            "import codecs\nstrict = codecs.lookup_error('strict')\ncodecs.register_error('strict', f)",
            "codecs.register_error('strict', strict)",
            "_codecs.register_error (model.f, ",
        ),
        ("neighbour.f.__code__ = (lambda x=1: 2).__code__", "", "the code of neighbour.f"),
        ("neighbour.f.__defaults__ = (2,)", "", "the code of neighbour.f"),
        ("neighbour.C.m.__code__ = f.__code__", "", "the code of neighbour.C.m"),
        ("neighbour.C.s.__code__ = (lambda: 2).__code__", "", "the code of neighbour.C.s"),
        ("neighbour.C.p.fget.__code__ = (lambda self: 2).__code__", "", "the code of neighbour.C.p"),
    ],
)
def test_an_object_of_a_model_that_others_can_reach_is_a_trace(
    session: InterpreterSession, code: str, undo: str, named: str
) -> None:
    found, _ = _found(session, code, undo)
    assert named in found


FUNCTION = """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x
    @staticmethod
    def backward(ctx, g): return g
F.apply(torch.ones(1, requires_grad=True)).backward()
"""


COMPILED = """
class Net(torch.nn.Module):
    def forward(self, x): return f(x) + x
torch.compile(Net(), backend="eager")(torch.ones(2))
"""
TRACED = """
import torch.fx
torch.fx.wrap("f")
def own_backend(module, inputs): return module.forward
torch.compile(f, backend=own_backend)(torch.ones(2))
"""
LIBRARY_COMPILES = """
exec(compile("def compiled(x=1): return 1", "<neighbour compiles f>", "exec"), vars(neighbour))
neighbour.f.__code__ = neighbour.compiled.__code__
"""
GENERIC = """
import pydantic
class G(pydantic.BaseModel, typing.Generic[typing.AnyStr]): x: typing.AnyStr
G[bytes](x=b"")
"""
OUTPUT = """
import dataclasses
import torch.utils._pytree as tree
from transformers.utils import ModelOutput
@dataclasses.dataclass
class Output(ModelOutput):
    logits: object = None
Output(logits=1)
del tree.SERIALIZED_TYPE_TO_PYTHON_TYPE[f"{__name__}.Output"]
"""
TREE = """
import torch.utils._pytree as tree
tree.register_pytree_node(Mine, lambda it: ([], None), lambda parts, _: Mine())
del tree.SERIALIZED_TYPE_TO_PYTHON_TYPE[tree.NO_SERIALIZED_TYPE_NAME_FOUND]
"""
THREADS = """
from concurrent.futures import ThreadPoolExecutor
end = threading.Event()
executor = ThreadPoolExecutor(1)
for _ in range(2): executor.submit(lambda: end.wait())
class Worker(threading.Thread):
    def run(self): end.wait()
def wait(_): end.wait()
threading.Thread(target=wait, args=(Mine(),)).start()
Worker().start()
"""


@pytest.mark.parametrize(
    "code",
    [
        "",
        "class Net(torch.nn.Module): pass\nnet = Net()\nnet.register_forward_hook(f)",
        "class D(neighbour.C): pass",
        "neighbour.cached(Mine)",
        "neighbour.dispatch.register(Mine, f)",
        "neighbour.registry[Mine, neighbour.C] = f",
        "copyreg.pickle(Mine, f)",
        "class Meta(type): pass\nneighbour.registry[Meta('Own', (), {})] = f",
        TREE,
        OUTPUT,
        "typing.Optional[Mine]; typing.List[Mine]",
        "kept = weakref.WeakKeyDictionary({neighbour.base: 1}); weakref.finalize(neighbour.base, f).detach()",
        "json.dumps({'a': 1}, default=f)",
        "thread = threading.Thread(target=f); thread.start(); thread.join()",
        THREADS,
        "neighbour.hooks.append(len); neighbour.registry[1] = [2]",
        COMPILED,
        TRACED,
        LIBRARY_COMPILES,
        "@typing.overload\ndef g(x: int) -> int: ...\ndef g(x): return x",
        GENERIC,
        FUNCTION,
    ],
)
def test_an_object_that_only_the_model_keeps_is_no_trace(session: InterpreterSession, code: str) -> None:
    assert _found(session, code, undo="end.set()" if code == THREADS else "") == ("", "")
