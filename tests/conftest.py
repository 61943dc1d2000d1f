from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import warm
from hypothesis import settings

if TYPE_CHECKING:
    from interpool.native import InterpreterManager, InterpreterSession

settings.register_profile("any machine", deadline=None)  # hypothesis allows an example 200 ms otherwise
settings.load_profile("any machine")

HERE = Path(__file__).parent
# Started first, so that they do not leave one worker alone at the end.
SLOW = [
    HERE / "system",
    HERE / "test_archiver_ext" / "packing",
    HERE / "test_model_store",
    HERE / "test_documents.py",
    HERE / "test_native" / "inside",
    *(
        HERE / "test_native" / "pool" / f"test_{name}.py"
        for name in ("call_limits", "shared_weights", "stress")
    ),
]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let Python's garbage collector pass over what is collected: all of that stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # a random order, if one is asked for, comes after it
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    assert all(path.exists() for path in SLOW), "a folder or file of slow tests has another name"
    slow = {path: any(map(path.is_relative_to, SLOW)) for path in {item.path for item in items}}
    items.sort(key=lambda item: not slow[item.path])


@pytest.hookimpl(tryfirst=True)  # before fixtures of any scope, which may pack
def pytest_runtest_setup(item: pytest.Item) -> None:
    warm.is_aside = item.get_closest_marker("fresh_children") is not None


@pytest.fixture(scope="session", autouse=True)
def _packing_forks_its_children() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interpool.native.child_process.subprocess", warm.stand_in())
        yield
    warm.end()


@pytest.fixture
def session(manager: InterpreterManager) -> Iterator[InterpreterSession]:
    """One interpreter of the pool that the test's own folder or file calls ``manager``."""
    with manager.acquire_session(timeout=60) as leased:
        yield leased
