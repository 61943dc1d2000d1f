"""Which variables of a model's libraries have read when they were imported."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from interpool.native import InterpreterManager, InterpreterSession


@pytest.fixture(scope="module")
def session() -> Iterator[InterpreterSession]:
    """In an interpreter of its own: noting begins once."""
    with InterpreterManager(1) as pool, pool.acquire_session() as one:
        scope = one.global_("builtins", "dict")()
        one.global_("builtins", "exec")(BEGIN, scope)
        yield one


BEGIN = """
import os
os.environ.update(dict.fromkeys((f"OF_{test}" for test in range(100, 200)), "x"))
from interpool.native.inside import import_reads
from interpool.native.upstream.cpython_private import environ_data
import_reads.note_reads(environ_data())
"""
LOAD = """
def load(library, model):
    import os, sys
    from interpool.native.inside import import_reads, module_scope
    sys.path.append(library)
    module_scope.enter(module_scope.ModuleScope(model))
    try:
        import handler
    finally:
        module_scope.enter(None)
        sys.path.remove(library)
    return import_reads.take_reads()
"""
LIBRARIES = {
    "reads": "import os\nVALUE = os.environ.get('VARIABLE')",
    "asks": "import os\nVALUE = 'VARIABLE' in os.environ",
    "reads_later": "import os\ndef value(): return os.environ.get('VARIABLE')",
    "sets": "import os\nos.environ.setdefault('VARIABLE', '1')\nVALUE = os.environ['VARIABLE']",
    "changes": "import os\nos.environ['VARIABLE'] = os.environ['VARIABLE'] + ':more'",
    "removes": "import os\ndel os.environ['VARIABLE']\nVALUE = os.environ.get('VARIABLE')",
    "loads": "import os\ndef load(): os.environ['VARIABLE'] = 'x'",
}


_tests = itertools.count(1)


def _noted(session: InterpreterSession, folder: Path, handler: str, present: bool = False) -> list[str]:
    """What is noted of a handler; its libraries and the variable are of no other's.

    ``present``: whether the process was started with the variable.
    """
    test = str(next(_tests) + 100 * present)
    library, model = folder / "library", folder / "model"
    library.mkdir()
    model.mkdir()
    for name, text in LIBRARIES.items():
        (library / f"{name}_{test}.py").write_text(text.replace("VARIABLE", f"OF_{test}"))
    for name in LIBRARIES:
        handler = re.sub(rf"import {name}\b", f"import {name}_{test} as {name}", handler)
    (model / "handler.py").write_text("import os\n" + handler.replace("VARIABLE", f"OF_{test}"))
    scope = session.global_("builtins", "dict")()
    session.global_("builtins", "exec")(LOAD, scope)
    found = scope.item("load")(str(library), str(model)).to_value()
    return [each.replace(f"_{test}", "") for each in found]


@pytest.mark.parametrize(
    ("handler", "library"),
    [
        ("os.environ['VARIABLE'] = 'x'\nimport reads", "reads"),
        ("os.environ['VARIABLE'] = 'x'\nimport asks", "asks"),
        ("os.environ['VARIABLE'] = 'x'\nimport sets", "sets"),
        ("os.environ['VARIABLE'] = 'x'\nimport changes", "changes"),
        ("import loads\nloads.load()\nimport reads", "reads"),
    ],
)
def test_a_librarys_reads_of_the_models_modules_are_noted(
    session: InterpreterSession,
    tmp_path: Path,
    handler: str,
    library: str,
) -> None:
    assert f"{library}, which has read its OF" in _noted(session, tmp_path, handler)


@pytest.mark.parametrize("library", ["reads", "asks", "sets"])
@pytest.mark.parametrize("removes", ["del os.environ['VARIABLE']", "os.environ.pop('VARIABLE', None)"])
def test_a_variable_that_the_model_removes_and_a_library_looks_for_is_noted(
    session: InterpreterSession, tmp_path: Path, removes: str, library: str
) -> None:
    handler = f"{removes}\nimport {library}"
    assert _noted(session, tmp_path, handler, present=True) == [f"{library}, which has read its OF"]


@pytest.mark.parametrize(
    "handler",
    [
        "import reads",
        "import removes",
        "import removes\nimport reads",
        "import reads\ndel os.environ['VARIABLE']",
    ],
)
def test_a_variable_that_is_there_or_that_a_library_removes_is_not(
    session: InterpreterSession, tmp_path: Path, handler: str
) -> None:
    assert _noted(session, tmp_path, handler, present=True) == []


@pytest.mark.parametrize(
    "handler",
    [
        "import reads",
        "os.environ['OTHER'] = 'x'\nimport reads",
        "import reads\nos.environ['VARIABLE'] = 'x'",
        "import reads_later\nos.environ['VARIABLE'] = 'x'\nreads_later.value()",
        "import sets",
        "import sets\nimport reads",
        "import sets\ndel os.environ['VARIABLE']\nimport reads",
    ],
)
def test_libraries_reads_of_their_own_modules_are_not_noted(
    session: InterpreterSession, tmp_path: Path, handler: str
) -> None:
    assert _noted(session, tmp_path, handler) == []
