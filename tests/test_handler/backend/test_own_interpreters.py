"""Who gets an interpreter in which something was left."""

from __future__ import annotations

from pathlib import Path

import pytest
from interpool_testing import Code, pool_of
from waiting import wait_for

from interpool.native import InterpreterManager

GIVE = """
from interpool.handler.signature_policy import SignaturePolicy
from interpool.handler.backend import neighbours
from interpool.handler.worker_token import WorkerToken

def give(*directories):
    token = WorkerToken(-1, -1, "", "", False, -1, SignaturePolicy())
    neighbours.give_to({directory: token for directory in directories}, "it has replaced torch.relu")
"""


manager = pool_of(1, preload=["interpool.handler.backend.service"])


def _given(manager: InterpreterManager, *directories: Path) -> tuple[str, str | None]:
    """The state of the interpreter, and its owner, after these models may have left something there."""
    with manager.acquire_session() as session:
        number = session.interpreter_id
        Code(session, GIVE).call("give", *map(str, directories))
    (entry,) = [one for one in manager.stats()["interpreters"] if one["interpreter"] == number]
    wait_for(lambda: len(manager) == 1, "another one for those that share")
    return entry["state"], entry["owner"]


def test_a_model_that_left_a_change_gets_the_interpreter_to_itself(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    assert _given(manager, tmp_path) == ("free", str(tmp_path))
    with manager.acquire_session(affinity=str(tmp_path)) as own, manager.acquire_session() as shared:
        assert own.interpreter_id != shared.interpreter_id


def test_no_model_gets_the_interpreter_if_several_may_have_left_the_change(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert _given(manager, tmp_path, other) == ("retired", None)


@pytest.mark.long
def test_no_model_gets_the_interpreter_if_its_own_is_gone(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    assert _given(manager, tmp_path / "gone") == ("retired", None)
