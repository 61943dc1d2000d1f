"""Code of one model that ends after its call meets no neighbour, and no other client."""

from __future__ import annotations

import shutil
import socket
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from extracted import extracted, token
from ordinary_models import ANSWERS, Worker, command
from waiting import wait_for

from interpool.handler.host.service_entry import SERVICE_MODULE
from interpool.handler.worker_reports import Report
from interpool.native import InterpreterManager

STREAMS = """
import threading
from ts.handler_utils.utils import send_intermediate_predict_response

RELEASED, SAID = threading.Event(), []

def late(request, context):
    RELEASED.wait()
    try:
        send_intermediate_predict_response(["a late part"], {0: request}, "", 200, context)
    except OSError as error:
        SAID.append(str(error))

def handle(data, context):
    if data is None:
        return None
    if data[0]["body"] == b"first":
        global THREAD
        THREAD = threading.Thread(target=late, args=(context.request_ids[0], context))
        THREAD.start()
        return ["answered"]
    RELEASED.set()
    THREAD.join()
    return [SAID[0]]
"""


def test_a_part_after_the_end_of_a_streamed_answer_reaches_no_other_client(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(closing(Worker(manager, tmp_path / "streams", STREAMS))) for _ in range(2)
        )
        assert first.ask(b"first") == "answered"
        said = second.ask(b"second")
        assert said.endswith("has its answer already: this part comes after it")
        assert second.ask(b"third") == said


CACHES = """
import os, shutil, weakref
class Keeper(dict): pass  # of modules
keeper = Keeper()
keeper["itself"] = keeper
os.makedirs("cache")
FINALIZER = weakref.finalize(keeper, shutil.rmtree, "cache")
"""


def test_code_that_runs_when_a_model_is_unloaded_is_in_no_neighbours_directory(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    """Its own directory is gone."""
    with ExitStack() as stack:
        gone = Worker(manager, tmp_path / "gone", f"{CACHES}def answer(): return 'gone'\n{ANSWERS}")
        gone.close()
        code = f"import os\nos.makedirs('cache')\ndef answer(): return str(os.path.isdir('cache'))\n{ANSWERS}"
        stays = stack.enter_context(closing(Worker(manager, tmp_path / "stays", code)))
        shutil.rmtree(tmp_path / "gone")
        with manager.acquire_session() as session:
            sweeps = session.global_("sys", "modules")["interpool.handler.backend.loaded_models"]
            session.global_("builtins", "setattr")(sweeps, "_next_sweep", 0.0)
        assert [stays.ask() for _ in range(2)] == ["True"] * 2


LEAVES = f"""
import json
class Thing: pass
put = setattr  # its source shows nothing
def answer():
    put(json, "left", Thing())
    return "left"
{ANSWERS}"""
MEETS = f"import json\ndef answer(): return str(hasattr(json, 'left'))\n{ANSWERS}"


def test_traces_of_a_call_are_searched_for_before_a_neighbour_runs_and_not_before_the_answer(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        manager = stack.enter_context(InterpreterManager(1, preload=[SERVICE_MODULE]))
        neighbour = stack.enter_context(closing(Worker(manager, tmp_path / "neighbour", MEETS)))
        leaves = stack.enter_context(closing(Worker(manager, tmp_path / "leaves", LEAVES)))
        assert [leaves.ask() for _ in range(2)] == ["left"] * 2
        assert _owners(manager) == [None]
        assert neighbour.ask() == "False"
        assert str(tmp_path / "leaves") in _owners(manager)


def test_traces_of_a_load_and_the_call_after_it_are_searched_for_together(tmp_path: Path) -> None:
    code = f"""
import json
class Thing: pass
put = setattr
put(json, "left", Thing())
def answer(): return "answered"
{ANSWERS}"""
    with ExitStack() as stack:
        manager = stack.enter_context(InterpreterManager(1, preload=[SERVICE_MODULE]))
        neighbour = stack.enter_context(closing(Worker(manager, tmp_path / "neighbour", MEETS)))
        leaves = stack.enter_context(closing(Worker(manager, tmp_path / "leaves", code)))
        assert _owners(manager) == [None]
        assert leaves.ask() == "answered"
        assert _owners(manager) == [None]
        assert neighbour.ask() == "False"
        assert str(tmp_path / "leaves") in _owners(manager)


def test_a_search_for_a_neighbours_traces_is_reported_as_no_part_of_the_call(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.settimeout(30)
    code = f"def answer(): return 'answered'\n{ANSWERS}"
    with ExitStack() as stack:
        stack.enter_context(ours)
        stack.enter_context(theirs)
        manager = stack.enter_context(InterpreterManager(1, preload=[SERVICE_MODULE]))
        asked = stack.enter_context(
            closing(Worker(manager, tmp_path / "asked", code, reports=theirs.fileno()))
        )
        neighbour = stack.enter_context(closing(Worker(manager, tmp_path / "neighbour", code)))
        while Report.receive(ours).kind != "started":
            pass
        assert neighbour.ask() == asked.ask() == "answered"
        assert [Report.receive(ours).kind for _ in range(2)] == ["searching", "searched"]


HEARS = f"""
import sys
heard = []
sys.stdout.write = heard.append
def answer():
    print("heard")
    return ",".join(map(str.strip, heard))
{ANSWERS}"""


def test_what_a_model_sets_on_a_standard_stream_is_its_own(tmp_path: Path) -> None:
    with ExitStack() as stack:
        manager = stack.enter_context(InterpreterManager(1, preload=[SERVICE_MODULE]))
        hears = stack.enter_context(closing(Worker(manager, tmp_path / "hears", HEARS)))
        code = f"def answer():\n    print('secret')\n    return 'printed'\n{ANSWERS}"
        prints = stack.enter_context(closing(Worker(manager, tmp_path / "prints", code)))
        assert prints.ask() == "printed"
        said = hears.ask()
    assert "heard" in said
    assert "secret" not in said


CUT_SHORT = """
import json, time
from pathlib import Path
class Thing: pass
put = setattr
def handle(data, context):
    if data is not None:
        put(json, "left", Thing())
        Path(data[0]["body"].decode()).touch()
        while True:
            time.sleep(0.01)
"""


@pytest.mark.parametrize("ends", [False, True], ids=["interrupted", "ended"])
def test_what_a_call_that_is_cut_short_leaves_meets_no_neighbour(tmp_path: Path, ends: bool) -> None:
    code = CUT_SHORT.replace("while True", "raise SystemExit\n        while True") if ends else CUT_SHORT
    with ExitStack() as stack:
        manager = stack.enter_context(InterpreterManager(1, preload=[SERVICE_MODULE]))
        neighbour = stack.enter_context(closing(Worker(manager, tmp_path / "neighbour", MEETS)))
        leaves = stack.enter_context(closing(Worker(manager, tmp_path / "leaves", code)))
        leaves.begin(str(tmp_path / "runs").encode())
        wait_for((tmp_path / "runs").exists, "the call")
        leaves.interrupt()
        assert neighbour.ask() == "False"
        assert _owners(manager) == [str(tmp_path / "leaves"), None]


def test_what_a_call_has_left_is_searched_for_before_a_neighbour_is_loaded_ahead(tmp_path: Path) -> None:
    with ExitStack() as stack:
        manager = stack.enter_context(InterpreterManager(1, preload=[SERVICE_MODULE]))
        leaves = stack.enter_context(closing(Worker(manager, tmp_path / "leaves", LEAVES)))
        assert leaves.ask() == "left"
        (extracted(tmp_path / "ahead") / "handler.py").write_text(MEETS)
        worker = token(ordinary=True, model_dir=str(tmp_path / "ahead")).as_text()
        with manager.acquire_session() as session:
            warm = session.global_(SERVICE_MODULE, "warm")
            assert warm(worker, command(tmp_path / "ahead")).to_value() is False
        assert str(tmp_path / "leaves") in _owners(manager)


def _owners(manager: InterpreterManager) -> list[str | None]:
    return [one["owner"] for one in manager.stats()["interpreters"]]
