"""What a process has once, each model of an interpreter has for itself."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from waiting import wait_for

from interpool.native import InterpreterManager, InterpreterSession

VIEW = "interpool.handler.backend.process_view"


def _run(session: InterpreterSession, source: str) -> object:
    """The value of ``found`` once the source has run in there."""
    names = session.global_("builtins", "dict")()
    session.global_("builtins", "exec")(source, names)
    return names["found"].to_value()


@pytest.fixture
def _as_before() -> Iterator[None]:
    """What the test changes is the C library's environment, which every process that is started gets."""
    yield
    os.putenv("PATH", os.environ["PATH"])
    os.unsetenv("LEFT_BY")


@pytest.mark.usefixtures("_as_before")
def test_a_model_begins_with_the_environment_that_the_process_was_started_with() -> None:
    """Also in an interpreter that has started after a neighbour changed the process's."""
    with InterpreterManager(1, max_size=2) as manager:
        with manager.acquire_session() as session:
            _run(
                session,
                "import os; os.environ['LEFT_BY'] = 'another'; home = os.environ.pop('PATH'); found = 1",
            )
        manager.resize(2, 2)
        wait_for(lambda: len(manager) == 2, "the second interpreter")
        (late,) = manager.all_instances()[1:]
        source = f"import os; from {VIEW} import ProcessView; before = 'LEFT_BY' in os.environ\n"
        source += "with ProcessView(None).entered():\n"
        source += "    found = [before, 'LEFT_BY' in os.environ, 'PATH' in os.environ]"
        with late.acquire_session() as session:
            assert _run(session, source) == [True, False, True]


def test_models_that_make_errors_of_all_warnings_are_exchanged_as_others_are() -> None:
    source = f"""
import warnings
from {VIEW} import ProcessView
strict, other = ProcessView(None), ProcessView(None)
with strict.entered():
    warnings.simplefilter("error")
found = []
for view in (other, strict, other):
    with view.entered():
        found.append(("error", None, Warning, None, 0) in warnings.filters)
strict.close()
other.close()
"""
    with InterpreterManager(1) as manager, manager.acquire_session() as session:
        assert _run(session, source) == [False, True, False]
