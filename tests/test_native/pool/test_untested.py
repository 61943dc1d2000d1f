"""A Python or torch that interpool was not tested with is looked at, and tried by who wants to try it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from interpool.native.errors import InterpreterStartError
from interpool.native.pool import untested
from interpool.native.provision import interposer_path

pytestmark = pytest.mark.long


@pytest.fixture
def other_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if only another torch than this one had been tested."""
    monkeypatch.delenv("INTERPOOL_UNTESTED", raising=False)
    monkeypatch.setattr(untested, "satisfies", lambda name, version: False)
    monkeypatch.setattr(untested, "tested_pythons", list)


@pytest.fixture
def found() -> str:
    return f"interpool was not tested with torch {metadata.version('torch')}. Looked at: "


@pytest.mark.usefixtures("other_torch")
def test_an_untested_torch_is_refused_with_what_was_looked_at(found: str) -> None:
    with pytest.raises(InterpreterStartError) as refused:
        untested.refuse_untested(interposer_path())
    assert str(refused.value).startswith(f"{found}all private names and symbols are there. What to do: ")
    assert "INTERPOOL_UNTESTED=1" in str(refused.value)


@pytest.mark.usefixtures("other_torch")
def test_an_untested_torch_may_be_tried_if_it_has_all_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERPOOL_UNTESTED", "1")
    untested.refuse_untested(interposer_path())


@pytest.mark.usefixtures("other_torch")
def test_an_untested_torch_that_lacks_names_is_refused_in_any_case(
    monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    monkeypatch.setenv("INTERPOOL_UNTESTED", "1")
    with pytest.raises(InterpreterStartError) as refused:
        untested.refuse_untested(Path("/nowhere/lib.so"))
    assert str(refused.value).startswith(f"{found}interpool's own library cannot be loaded")
    assert "INTERPOOL_UNTESTED" not in str(refused.value)


def test_a_python_that_was_not_tested_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untested, "tested_pythons", lambda: ["3.9"])
    monkeypatch.setattr(untested, "satisfies", lambda name, version: True)
    (found,) = untested.untested_versions()
    assert found.startswith(f"CPython {sys.version_info.major}.{sys.version_info.minor}.")


def test_a_pool_does_not_start_with_an_untested_torch() -> None:
    program = """
from interpool.native.pool import untested
untested.satisfies = lambda name, version: False
from interpool.native import InterpreterManager
try:
    InterpreterManager(1)
except Exception as error:
    print(type(error).__name__, error)
"""
    environment = {name: value for name, value in os.environ.items() if name != "INTERPOOL_UNTESTED"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("InterpreterStartError interpool was not tested with ")
