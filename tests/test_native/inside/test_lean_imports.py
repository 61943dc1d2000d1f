"""What interpreters import of torch at first, and later: nothing but time and memory differs."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from archives import SCALE, build_package, build_scale
from interpool_testing import PATH, Code

from interpool.native import InterpreterManager, InterpreterSession
from interpool.native.errors import InterpreterStartError
from interpool.native.upstream import torch_imports

pytestmark = pytest.mark.long


@contextmanager
def fresh_interpreter() -> Iterator[InterpreterSession]:
    """One that was not used before."""
    with InterpreterManager(1) as pool, pool.acquire_session() as session:
        session.global_("sys", "path").attr("extend")(PATH)
        yield session


@pytest.fixture
def lean(manager: InterpreterManager) -> Iterator[InterpreterSession]:
    """A new interpreter; the session's pool has had the process's first one."""
    with fresh_interpreter() as session:
        yield session


class Full(NamedTuple):
    """What an interpreter has that imports all of torch."""

    names: list[str]
    described: dict[str, str]
    deferred: int


@pytest.fixture(scope="module")
def full(manager: InterpreterManager) -> Full:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INTERPOOL_FULL_IMPORT", "1")
        pool = InterpreterManager(1)
    with pool, pool.acquire_session() as session:
        session.global_("sys", "path").attr("extend")(PATH)
        names = session.global_("namespaces", "names")().to_value()
        return Full(names, described(session), deferred(session))


def deferred(session: InterpreterSession, *roots: str) -> int:
    found: int = session.global_("namespaces", "deferred")(*roots).to_value()
    return found


def described(session: InterpreterSession, **kwargs: bool) -> dict[str, str]:
    found: dict[str, str] = session.global_("namespaces", "describe")(**kwargs).to_value()
    return {name: what for name, what in found.items() if not _IS_A_CACHE.search(name)}


# By the addresses of operators that were looked up, and by the order of look-ups.
_IS_A_CACHE = re.compile(r"^torch\.jit\._builtins:_builtin_table$|^torch\.ops:|_autograd_function_id$")

INFERENCE = """
import io, torch
from torch import nn

def ask():
    with torch.inference_mode():
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()(torch.ones(1, 3, 8, 8))
        nn.LSTM(4, 4)(torch.ones(2, 1, 4))
        layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        nn.TransformerEncoder(layer, 1).eval()(torch.ones(1, 3, 8))
        torch.einsum("ij,jk", torch.ones(2, 2), torch.ones(2, 2)).softmax(1)
    torch.rand(2, generator=torch.Generator().manual_seed(0))
    model = nn.Linear(2, 2)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file))
    x = torch.ones(2, requires_grad=True)
    (x * x).sum().backward()
    scripted = io.BytesIO()
    torch.jit.save(torch.jit.script(model), scripted)
    scripted.seek(0)
    torch.jit.load(scripted)(torch.ones(1, 2))
    return torch.compiler.is_compiling()
"""


def test_neither_inference_nor_an_archive_that_names_a_module_imports_anything_more(
    lean: InterpreterSession, tmp_path: Path
) -> None:
    before = deferred(lean)
    assert before > 300
    assert Code(lean, INFERENCE).call("ask") is False
    assert deferred(lean) == before
    source = f"import torch.utils.checkpoint as checkpoint\n{SCALE}\ndef make(): return Scale(2)"
    naming = build_package(tmp_path / "naming.pt", {"naming_model.py": source}, "naming_model:make")
    load = lean.global_("interpool.native.inside.packages", "load_object")
    load(str(build_scale(tmp_path / "scale.pt", 2)), "model", "model.pkl")  # what opening any archive imports
    before = deferred(lean)
    model = load(str(naming), "model", "model.pkl")
    assert deferred(lean) == before > 0
    assert model(torch.ones(2)).to_value().tolist() == [2, 2]


# What of eager modules' is another thing until the families are imported: names of LATER_NAMES, registries
# of what the families define.
UNTIL_TOUCHED = re.compile(
    r"^torch:(cond|vmap|while_loop|__dir__|__getattr__)$"
    r"|^torch\.autograd:(gradcheck|gradgradcheck|__dir__|__getattr__)$"
    r"|^torch:Sym"
    r"|^torch\.compiler:(NestedCompileRegionOptions|precompile|PrecompileError(\..*)?|__dir__|__getattr__)$"
    r"|^torch\._library\.(custom_ops:OPDEF_TO_LIB|opaque_object:_OPAQUE_TYPES_BY_NAME)$"
    r"|^torch\._ops:_higher_order_ops$"
    r"|^torch\._weights_only_unpickler:_marked_safe_globals_set$"
    r"|^torch\.library:(_defs|_impls|_keep_alive)$"
    r"|^torch\.utils\._pytree:(CONSTANT_NODES|SERIALIZED_TYPE_TO_PYTHON_TYPE|SUPPORTED\w+)$"
)


def test_all_modules_of_a_full_import_are_there_and_only_registries_differ_until_touched(
    lean: InterpreterSession, full: Full
) -> None:
    assert full.deferred == 0
    assert lean.global_("namespaces", "names")().to_value() == full.names
    found, expected = described(lean), full.described
    modules = {name.partition(":")[0] for name in found}
    differing = {
        name
        for name in found.keys() | expected.keys()
        if name.partition(":")[0] in modules and found.get(name) != expected.get(name)
    }
    assert {name for name in differing if not UNTIL_TOUCHED.search(name)} == set()
    found = described(lean, also_deferred=True)
    assert deferred(lean) == 0
    assert {name: (found.get(name), what) for name, what in expected.items() if found.get(name) != what} == {}
    assert sorted(found.keys() - expected.keys())[:20] == []


# One of each family for one interpreter: starting one for each takes long. The compiler's needs the others.
TOUCHES = {
    "distributions": [
        "import torch.distributions as d; assert d.Normal(0.0, 1.0).sample().shape == ()",
        "from torch.distributions.normal import Normal; Normal(0.0, 1.0)",
        "from torch.distributions import *; Normal(0.0, 1.0)",
        "import importlib; importlib.import_module('torch.distributions.kl').kl_divergence",
        "import pickle; pickle.loads(b'ctorch.distributions.normal\\nNormal\\n.')",
        "import sys; vars(sys.modules['torch.distributions'])['Normal']",
        "import torch, inspect; assert 'class Normal' in inspect.getsource(torch.distributions.normal)",
        "import torch, importlib; importlib.reload(torch.distributions.normal).Normal",
        "import torch; torch.distributions.mine = 1; assert torch.distributions.Normal",
    ],
    "quantization": [
        "import torch; assert torch.ao.quantization.QuantStub()(1) == 1",
        "from torch.ao.quantization import quantize_dynamic as q; assert callable(q)",
        "from torch.quantization import QuantStub as q; assert q",
        "import torch.ao.nn.quantized as q; assert q.Linear(2, 2)",
        "import torch; assert torch.nn.intrinsic.qat.ConvBn2d",
        "import torch; getattr(torch.nn.quantized, 'Linear')",
        "import torch.ao.quantization.fake_quantize as f; f.FakeQuantize",
        "import copyreg, torch.nn.qat; copyreg.__newobj__(torch.nn.qat.Linear)",
        "import torch.ao.ns.fx.utils",
    ],
    "compiler": [
        "from torch.fx.graph import Graph",
        "import torch; assert callable(torch.vmap(torch.sin))",
        "import torch; assert 'cond' in dir(torch) and torch.cond.__module__ == 'torch'",
        "import torch; assert torch.ops.higher_order.while_loop",
        "import torch; assert torch.ops.prims.add(torch.ones(2), torch.ones(2)).tolist() == [2, 2]",
        "import torch; assert torch.nn.functional.celu(torch.ones(2, device='meta')).shape == (2,)",
        "import torch, torch.utils._pytree as t; assert t.tree_leaves(torch.Size([3, 4])) == [3, 4]",
        "import torch; torch.serialization.get_safe_globals()",
        "import torch; torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))",
    ],
}


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(i, marks=[pytest.mark.long] if i not in (0, 2) else [])
        for i in range(len(TOUCHES["compiler"]))
    ],
)
def test_touching_a_module_imports_its_family(lean: InterpreterSession, number: int) -> None:
    run = lean.global_("builtins", "exec")
    for family, statements in TOUCHES.items():
        run(statements[number], lean.global_("builtins", "dict")())
        assert deferred(lean, *torch_imports.FAMILIES[family]) == 0, statements[number]


SMALL = {
    "asyncio": "import asyncio; assert asyncio.run(asyncio.sleep(0, 7)) == 7",
    "tarfile": "import io, tarfile; tarfile.open(fileobj=io.BytesIO(), mode='w').close()",
    "difflib": "from difflib import get_close_matches; assert get_close_matches('abd', ['abc']) == ['abc']",
    "locale": "import locale; assert locale.getpreferredencoding()",
}
GRADCHECK = """
import torch
x = torch.ones(1, dtype=torch.double, requires_grad=True)
assert torch.autograd.gradcheck(torch.sin, x)
"""


def test_small_families_do_what_they_do_elsewhere_and_one_that_another_needs_is_waited_for(
    lean: InterpreterSession,
) -> None:
    run = lean.global_("builtins", "exec")
    for family, statement in SMALL.items():
        assert deferred(lean, *torch_imports.FAMILIES[family]) > 0, family
        run(statement, lean.global_("builtins", "dict")())
        assert deferred(lean, *torch_imports.FAMILIES[family]) == 0, family
    # torch's compiler takes a name of unittest.mock, which another thread is importing.
    code = Code(
        lean,
        """
        import threading, torch
        from importlib.machinery import SourceFileLoader

        def at_once():
            begun, over, failed = threading.Event(), threading.Event(), []
            stock = SourceFileLoader.get_code
            def slow(self, name):
                if name == "unittest.mock":
                    begun.set()
                    over.wait(3)  # the other one's failure, if it does not wait
                return stock(self, name)
            def touch(statement, last):
                try:
                    exec(statement, {})
                except BaseException as error:
                    failed.append(repr(error))
                if last:
                    over.set()
            SourceFileLoader.get_code = slow
            try:
                first = threading.Thread(target=touch, args=("from unittest.mock import patch", False))
                first.start()
                begun.wait()
                second = threading.Thread(target=touch, args=("from torch.fx.graph import Graph", True))
                second.start()
                first.join(), second.join()
            finally:
                SourceFileLoader.get_code = stock
            return failed
        """,
    )
    assert code.call("at_once") == []
    assert deferred(lean, *torch_imports.FAMILIES["compiler"], *torch_imports.FAMILIES["unittest"]) == 0
    run(GRADCHECK, lean.global_("builtins", "dict")())
    assert deferred(lean, *torch_imports.FAMILIES["gradcheck"]) == 0


def test_an_import_that_fails_is_made_again_and_whole_for_all_threads_that_touch_it_at_once(
    lean: InterpreterSession,
) -> None:
    code = Code(
        lean,
        """
        import sys, threading, torch

        def at_once(count):
            barrier, found = threading.Barrier(count), []
            def touch(i):
                barrier.wait()
                if i % 3 == 0:
                    found.append(torch.distributions.Normal.__name__)
                elif i % 3 == 1:
                    from torch.distributions.normal import Normal
                    found.append(Normal.__name__)
                else:
                    import torch.distributions.kl as kl
                    found.append(kl.Normal.__name__)
            threads = [threading.Thread(target=touch, args=(i,)) for i in range(count)]
            for thread in threads: thread.start()
            for thread in threads: thread.join(60)
            return found

        def failing():
            stock = sys.modules.get("torch.distributions.utils")
            loader = type(stock.__loader__)
            get = loader.get_code
            def fail(self, name):
                if name == "torch.distributions.studentT":
                    raise OSError("not now")
                return get(self, name)
            loader.get_code = fail
            try:
                torch.distributions.Normal
            except OSError as error:
                return str(error)
            finally:
                loader.get_code = get
        """,
    )
    before = deferred(lean)
    assert code.call("failing") == "not now"
    assert 0 < deferred(lean) <= before
    assert code.call("at_once", 12) == ["Normal"] * 12
    # And outside of its caller's modes.
    moded = Code(
        lean,
        """
        import torch

        def touch():
            with torch.inference_mode(), torch.device("meta"):
                torch.vmap(torch.sin)
                return torch.is_inference_mode_enabled(), torch.ones(1).device.type

        def modes():
            seen = []
            for module in (torch._refs, torch._decomp.decompositions, torch.fx, torch.nested):
                seen += [v.device.type for v in vars(module).values() if isinstance(v, torch.Tensor)]
            return torch.is_inference_mode_enabled(), seen
        """,
    )
    assert moded.call("touch") == (True, "meta")
    assert moded.call("modes")[0] is False
    assert "meta" not in moded.call("modes")[1]


def test_the_switch_takes_0_and_1_and_nothing(
    manager: InterpreterManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_FULL_IMPORT", "")
    with fresh_interpreter() as session:
        assert deferred(session) > 300
    monkeypatch.setenv("INTERPOOL_FULL_IMPORT", "yes")
    with pytest.raises(InterpreterStartError, match=r"INTERPOOL_FULL_IMPORT is 'yes': it may be 0 or 1"):
        InterpreterManager(1)


# ---- each row of native/upstream/torch_imports.py --------------------------------------------------------


def test_every_root_of_a_family_is_imported_with_torch(full: Full) -> None:
    names = set(full.names)
    roots = {root for roots in torch_imports.FAMILIES.values() for root in roots if _is_of_this_torch(root)}
    assert roots - names == set()
    assert names >= torch_imports.EAGER


def _is_of_this_torch(module: str) -> bool:
    """Rows are kept for several releases: not every one has every module."""
    return importlib.util.find_spec(module) is not None


NOT_IN_ALL = {"precompile"}  # of torch.compiler: a module of its own in 2.15


@pytest.mark.parametrize("importer", torch_imports.LATER_NAMES)
def test_functions_of_an_importer_do_not_use_the_names_that_it_is_given_later(importer: str) -> None:
    spec = importlib.util.find_spec(importer)
    assert spec is not None
    code = spec.loader.get_code(importer)  # type: ignore[union-attr]
    annotating = [each for each in code.co_consts if getattr(each, "co_name", "") == "__annotate__"]  # 3.14
    used = {name for inner in _functions(code) if inner not in annotating for name in inner.co_names}
    for module, names in torch_imports.LATER_NAMES[importer].items():
        if _is_of_this_torch(module):
            assert set(names) - NOT_IN_ALL <= set(code.co_names), module
            assert used & set(names) == set()


def _functions(code: Any) -> Iterator[Any]:
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            yield constant
            yield from _functions(constant)


@pytest.mark.parametrize("where", torch_imports.CLASS_CHECKS, ids=".".join)
def test_functions_that_ask_for_classes_are_there(where: tuple[str, str]) -> None:
    spec = importlib.util.find_spec(where[0])
    assert spec is not None
    code = spec.loader.get_code(where[0])  # type: ignore[union-attr]
    (function,) = [each for each in _functions(code) if each.co_name == where[1]]
    used = set(function.co_names) | set(function.co_varnames)
    for module, names in torch_imports.CLASS_CHECKS[where].items():
        assert used & set(names), module  # which of them, releases differ in


@pytest.mark.parametrize("where", torch_imports.QUESTIONS, ids=".".join)
def test_functions_that_ask_a_class_or_cpp_ask_nothing_else(where: tuple[str, str]) -> None:
    spec = importlib.util.find_spec(where[0])
    assert spec is not None
    code = spec.loader.get_code(where[0])  # type: ignore[union-attr]
    asked = torch_imports.QUESTIONS[where].partition(":")[2]
    for function in [each for each in _functions(code) if each.co_name == where[1]]:  # not in every release
        assert set(function.co_names) <= {"isinstance", "FakeTensor", "Tensor", "torch", "_C", asked}
        assert asked in function.co_names
