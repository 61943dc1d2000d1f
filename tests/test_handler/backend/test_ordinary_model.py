"""Ordinary archives' models that share an interpreter, each loaded and asked as by a worker."""

from __future__ import annotations

import shutil
from pathlib import Path

import otf
import pytest
from ordinary_models import ANSWERS, asked, command, loaded, replied, service_of

from interpool.handler.host.service_entry import SERVICE_MODULE
from interpool.native import InterpreterSession


def test_the_pythonpath_of_another_model_does_not_count(session: InterpreterSession, tmp_path: Path) -> None:
    before = (
        "import os, sys\nos.environ['PYTHONPATH'] = os.pathsep.join(filter(None, sys.path))\n"
        "def answer(): return 'before'\n" + ANSWERS
    )
    service = loaded(session, tmp_path / "before", before)
    for _ in range(3):  # its first calls are followed by checks, without any model in place
        assert asked(session, service) == "before"
    after = "import colorsys\ndef answer(): return colorsys.WHERE\n" + ANSWERS
    service = loaded(session, tmp_path / "after", after, colorsys="WHERE = 'mine'")
    assert asked(session, service) == "mine"


RAISED = pytest.mark.parametrize(
    "raised",
    [
        "asyncio.CancelledError()",
        "GeneratorExit()",
        "KeyboardInterrupt()",
        "BaseExceptionGroup('several', [KeyboardInterrupt()])",
        "type('Odd', (RuntimeError,), {'__str__': lambda self: sys.exit()})()",
    ],
)


@RAISED
def test_a_load_may_end_by_any_exception(session: InterpreterSession, tmp_path: Path, raised: str) -> None:
    load = service_of(session, tmp_path / "ends", f"import asyncio, sys\nraise {raised}")
    reply = replied(session, load, command(tmp_path / "ends"))
    assert reply[:4] == otf.integer(500)
    name = raised.partition("(")[0].rpartition(".")[2].replace("type", "Odd")
    assert f"could not be loaded: {name}".encode() in reply


@RAISED
def test_a_call_may_end_its_worker_by_any_exception(
    session: InterpreterSession, tmp_path: Path, raised: str
) -> None:
    code = f"import asyncio, sys\ndef answer(): raise {raised}\n{ANSWERS}"
    with (tmp_path / "log").open("w+b") as log:
        service = loaded(session, tmp_path / "ends", code, log.fileno())
        reply, keeps_open = session.global_("builtins", "tuple")(service(otf.predict(b""))).to_value()
        assert (reply, keeps_open) == (b"", False)
        assert b"a worker of 'ends' ended: " in (tmp_path / "log").read_bytes()


def test_a_model_that_froze_the_collector_is_freed_when_it_is_dropped(
    session: InterpreterSession, tmp_path: Path
) -> None:
    freed = tmp_path / "freed"
    code = f"""
import gc, pathlib
class Weights:
    def __init__(self): self.again = self
    def __del__(self): pathlib.Path({str(freed)!r}).touch()
weights = Weights()
gc.freeze()
def answer(): return "frozen"
{ANSWERS}"""
    assert asked(session, loaded(session, tmp_path / "frozen", code)) == "frozen"
    session.global_(SERVICE_MODULE, "drop")(str(tmp_path / "frozen"), True)
    assert freed.exists()


def test_output_of_an_exit_function_is_no_line_of_another_models_call(
    session: InterpreterSession, tmp_path: Path
) -> None:
    ended = tmp_path / "ended"
    code = f"""
import atexit, pathlib
def end():
    print("at the end")
    pathlib.Path({str(ended)!r}).touch()
atexit.register(end)
{ANSWERS}"""
    waits = (
        f"import os, time\ndef answer():\n    while not os.path.exists({str(ended)!r}): time.sleep(0.01)\n"
    )
    with (tmp_path / "log").open("w+b") as log:
        loaded(session, tmp_path / "unregistered", code)
        other = loaded(session, tmp_path / "other", f"{waits}    return 'other'\n{ANSWERS}", log.fileno())
        session.global_("builtins", "setattr")(
            session.global_("sys", "modules")["interpool.handler.backend.loaded_models"], "_next_sweep", 0.0
        )
        shutil.rmtree(tmp_path / "unregistered")
        assert asked(session, other) == "other"
        assert b"at the end" not in (tmp_path / "log").read_bytes()
