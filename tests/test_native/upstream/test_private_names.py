"""What interpool relies on beyond public names: each named in one place, and there."""

from __future__ import annotations

import ast
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from paths import ROOT

from interpool.native.upstream import cpython_private, torch_private
from interpool.native.upstream.private_names import PrivateName, problems

if TYPE_CHECKING:
    from collections.abc import Iterator

# They run where nothing else can be imported; cpython_private names what they use.
ALONE = {"native/inside/loader.py", "handler/frontend/shim.py"}
# They take an attribute's name as text.
BY_NAME = {"getattr", "setattr", "hasattr", "delattr"}
# A builtin module of our own, and functions that are documented in spite of their names.
PUBLIC = {"_interpool", "sys._current_frames", "sys._getframe", "os._exit"}


def test_all_private_names_are_as_this_torch_and_this_python_have_them() -> None:
    assert cpython_private.check() == []
    assert torch_private.check() == []


def test_importing_the_tables_imports_no_torch() -> None:
    import subprocess

    code = "import sys, interpool.native.upstream.torch_private; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


RELEASE = """
FLAG = 3
class Owner:
    def __init__(self): self._held = "text"
    def step(self, given): ...
"""


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A library's next release."""
    module = types.ModuleType("release")
    exec(RELEASE, vars(module))
    monkeypatch.setitem(sys.modules, "release", module)
    return module


@pytest.mark.usefixtures("release")
def test_all_changes_of_private_names_are_listed_together() -> None:
    why = "the test"
    names = [
        PrivateName("release:Owner", why),
        PrivateName("release:Owner.__init__", why, mentions=("_held", "text")),
        PrivateName("release:Owner.step", why, ("self", "given")),
        PrivateName("release:FLAG", why, value=3),
        PrivateName("json.decoder", why, mentions=("class JSONDecoder",)),
        PrivateName("release:Owner.gone", why),
        PrivateName("no_such_module_at_all:name", why),
        PrivateName("release:Owner.__init__", why, mentions=("_held", "_kept")),
        PrivateName("release:Owner.step", why, ("self",)),
        PrivateName("release:FLAG", why, value=4),
        PrivateName("json.decoder", why, mentions=("class NobodysDecoder",)),
        PrivateName("json.no_such_module", why, mentions=("text",)),
    ]
    assert problems(names) == [
        "release:Owner.gone is gone",
        "no_such_module_at_all:name is gone",
        "release:Owner.__init__ no longer uses _kept",
        "release:Owner.step takes (self, given), not (self)",
        "release:FLAG is 3, not 4",
        "json.decoder no longer has 'class NobodysDecoder'",
        "json.no_such_module is gone",
    ]


def _private_uses(file: Path) -> Iterator[str]:
    """Private names of torch's and the standard library's that a file's code imports or asks for."""
    owners = {"torch", *sys.stdlib_module_names} - {"__future__"}
    bound: dict[str, str] = {}
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[(alias.asname or alias.name).partition(".")[0]] = alias.name.partition(".")[0]
                if _is_private(alias.name) and alias.name.partition(".")[0] in owners | {alias.name}:
                    yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in owners:
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                if _is_private(f"{node.module}.{alias.name}"):
                    yield f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            chain = ast.unparse(node).split(".")
            if not all(map(str.isidentifier, chain)):
                continue  # what a call gives, or an element; what it was asked of is a node of its own
            if bound.get(chain[0], "").partition(".")[0] in owners and _is_private(".".join(chain[1:])):
                yield ".".join(chain)

    for node in ast.walk(tree):
        # An attribute by its name, of any object; interpool asks for none of its own so.
        if isinstance(node, ast.Call) and ast.unparse(node.func) in BY_NAME:
            yield from filter(_is_private, _texts(node.args[1]))


def _texts(node: ast.expr) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def _files() -> Iterator[Path]:
    """Those of the product that name nothing private themselves."""
    for folder in ("native", "archiver_ext", "handler"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if file.parent.name != "upstream" and str(file.relative_to(ROOT)) not in ALONE:
                yield file


@pytest.mark.long
def test_no_other_file_uses_a_private_name() -> None:
    found = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in _files()
        for name in _private_uses(file)
        if name not in PUBLIC
    }
    assert found == set()


def test_every_private_use_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "uses.py"
    file.write_text(
        "import torch._C, threading\n"
        "from torch.package import _mock\n"
        "threading._active, torch.jit._state, threading.Thread\n"
        "getattr(thing, '_name', None), getattr(thing, '__doc__'), hasattr(thing, 'name')\n"
    )
    assert set(_private_uses(file)) == {
        "torch._C", "torch.package._mock", "threading._active", "torch.jit._state", "_name"
    }  # fmt: skip
