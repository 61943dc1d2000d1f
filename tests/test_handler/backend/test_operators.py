"""Operators that served models define: a model is loaded again, and never answers by a neighbour's."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import otf
import pytest
from extracted import extracted, token
from interpool_testing import Code

from interpool.handler import failed_load
from interpool.handler.host.service_entry import SERVICE_FUNCTION, SERVICE_MODULE
from interpool.native import InterpreterSession

DEFINED = """
import torch

torch.library.define("{name}", "(Tensor x) -> Tensor")

@torch.library.impl("{name}", "cpu")
def scale(x):
    return x * {factor}
"""
CUSTOM = """
import torch

@torch.library.custom_op("{name}", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * {factor}
"""
CARRIES_ON = """
try:
    import operators
except RuntimeError:
    pass
"""
HANDLER = """
import torch

def handle(data, context):
    return [str(torch.ops.{space}.{plain}(torch.ones(1)).item())] * len(data) if data else None
"""
BOTH = pytest.mark.parametrize("source", [DEFINED, CUSTOM])


class Messages:
    """What the host hears on a worker's socket pair; it answers as the host does."""

    def __init__(self) -> None:
        self._host, self.inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.said: list[bytes] = []
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while said := self._host.recv(failed_load.MESSAGE_LIMIT):
            self.said.append(said)
            failed_load.take_note(self._host)

    def close(self) -> None:
        self.inside.close()
        self._thread.join()
        self._host.close()


class Served:
    """An ordinary archive's directory, whose handler answers with its operator's factor."""

    def __init__(self, directory: Path, name: str, source: str, factor: int, loads: str = "") -> None:
        space, _, plain = name.partition("::")
        extracted(directory, handler="handler.py")
        (directory / "operators.py").write_text(source.format(name=name, factor=factor))
        handler = (loads or "import operators\n") + HANDLER.format(space=space, plain=plain)
        (directory / "handler.py").write_text(handler)
        self.directory = directory

    @contextmanager
    def _worker(self, messages: Messages, *, state: int) -> Iterator[tuple[str, bytes]]:
        with open(os.devnull, "wb") as log:
            asked = {"failed_load": messages.inside.fileno(), "state": state, "own_state": state > 0}
            yield (
                token(log.fileno(), ordinary=True, **asked).as_text(),
                otf.load("m", str(self.directory), handler="handler.py"),
            )

    def ask(
        self, session: InterpreterSession, *, load: bool = False, state: int = 0
    ) -> tuple[int, bytes, bool, list[bytes]]:
        """The reply's code and rest, whether the connection stays open, and the messages to the host.

        The code is 0 if another interpreter is to answer.
        """
        messages = Messages()
        try:
            with self._worker(messages, state=state) as (worker, command):
                service = session.global_(SERVICE_MODULE, SERVICE_FUNCTION)(worker, command)
                answer = service(command if load else otf.predict(b"x"))
                if session.global_("builtins", "repr")(answer).to_value() == "None":
                    return 0, b"", True, messages.said
                reply = session.global_("builtins", "bytes")(answer[0]).to_value()
                stays = bool(answer[1].to_value())
        finally:
            messages.close()
        return int.from_bytes(reply[:4], "big"), reply[4:], stays, messages.said

    def answers(self, session: InterpreterSession, factor: int, state: int = 0) -> bool:
        code, reply, stays, said = self.ask(session, state=state)
        return (code, stays, said) == (200, True, []) and f"{factor}.0".encode() in reply

    def drop(self, session: InterpreterSession) -> None:
        session.global_(SERVICE_MODULE, "drop")(str(self.directory), True)


@pytest.mark.long
@BOTH
def test_a_model_that_was_dropped_is_loaded_again(
    session: InterpreterSession, tmp_path: Path, source: str
) -> None:
    served = Served(tmp_path / "m", f"test_again::op{len(source)}", source, 2)
    for _ in range(3):
        assert served.answers(session, 2)
        served.drop(session)


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("loads", ["", CARRIES_ON])
def test_a_model_whose_operator_is_a_neighbours_gets_interpreters_of_its_own(
    session: InterpreterSession, tmp_path: Path, source: str, loads: str
) -> None:
    name = f"test_beside::op{len(source)}_{len(loads)}"
    one = Served(tmp_path / "one", name, source, 2)
    other = Served(tmp_path / "other", name, source, 3, loads)
    assert one.answers(session, 2)
    for load in (True, False):
        code, _, _, said = other.ask(session, load=load)
        assert code == 0
        assert len(said) == 1
        assert said[0].startswith(failed_load.OWN_INTERPRETERS)
        assert f"the operator {name}".encode() in said[0]
        assert str(one.directory).encode() in said[0]
        assert one.answers(session, 2)
    other.drop(session)
    assert one.answers(session, 2)
    one.drop(session)
    assert other.answers(session, 3)
    other.drop(session)


@pytest.mark.long
@BOTH
def test_the_next_version_has_the_operator_of_one_that_was_unregistered(
    session: InterpreterSession, tmp_path: Path, source: str
) -> None:
    name = f"test_next::op{len(source)}"
    one, other = Served(tmp_path / "one", name, source, 2), Served(tmp_path / "other", name, source, 3)
    assert one.answers(session, 2)
    shutil.rmtree(one.directory)
    assert other.answers(session, 3)
    other.drop(session)


@pytest.mark.long
def test_a_worker_that_ends_leaves_the_operators_of_another_one_of_its_model(
    session: InterpreterSession, tmp_path: Path
) -> None:
    served = Served(tmp_path / "m", "test_siblings::op", CUSTOM, 2)
    for state in (1, 2):
        assert served.answers(session, 2, state)
    session.global_(SERVICE_MODULE, "end_states")("2")
    session.global_(SERVICE_MODULE, "sweep")()
    assert served.answers(session, 2, 1)
    served.drop(session)


@pytest.mark.long
def test_a_refusal_of_one_model_moves_no_other_one(session: InterpreterSession, tmp_path: Path) -> None:
    served = Served(tmp_path / "m", "test_innocent::op", CUSTOM, 2)
    conflicting = session.global_("interpool.native.inside.refusals", "conflicting")
    for other in (tmp_path / "other", tmp_path / "mm", tmp_path):
        conflicting(str(other), "a neighbour is in the way")
    assert served.answers(session, 2)
    conflicting(str(served.directory / "archive.ptpkg"), "a neighbour is in the way")
    _, _, stays, said = served.ask(session)
    assert stays
    assert said == [failed_load.OWN_INTERPRETERS + b"a neighbour is in the way"]
    served.drop(session)


def test_a_refusal_of_torch_is_named_and_earlier_registrations_go(
    session: InterpreterSession, tmp_path: Path
) -> None:
    refused = DEFINED + "\ntorch.library.Library('prim', 'DEF')\n"
    served = Served(tmp_path / "m", "test_refused::op", refused, 2)
    for _ in range(2):
        code, reply, _, _ = served.ask(session, load=True)
        assert code == 500
        assert b"prim is a reserved namespace" in reply


@pytest.mark.long
def test_registrations_of_the_environments_modules_stay(session: InterpreterSession, tmp_path: Path) -> None:
    (tmp_path / "registers_op.py").write_text(DEFINED.format(name="test_stays::op", factor=5))
    path = session.global_("sys", "path")
    path.attr("append")(str(tmp_path))
    try:
        # And models may add to it side by side what a library in the directories of both does.
        adds = "import torch, registers_op\ntorch.library.register_fake('test_stays::op', torch.empty_like)"
        models = [Served(tmp_path / name, "test_stays::op", adds, 5) for name in ("one", "other")]
        for _ in range(2):
            for served in models:
                assert served.answers(session, 5)
            for served in models:
                served.drop(session)
        answer = "import torch\ndef answer(): return torch.ops.test_stays.op(torch.ones(1)).item()"
        assert Code(session, answer).call("answer") == 5
    finally:
        path.attr("remove")(str(tmp_path))
