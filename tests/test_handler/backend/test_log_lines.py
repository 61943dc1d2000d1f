"""The log lines of requests: TorchServe's own, what a model makes of logging, and when they are written."""

from __future__ import annotations

import json
import os
import re
import socket
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import otf
import pytest
from extracted import extracted, token
from interpool_testing import Code
from waiting import wait_for

from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.host.service_entry import SERVICE_FUNCTION, SERVICE_MODULE, STDIO_MODULE
from interpool.native import InterpreterManager, InterpreterSession

RECEIVED = r"Backend received inference at: \d+ \[request request-\]\n"
OF_MODEL = r"\|#ModelName:m,Level:Model\|#type:{}\|#hostname:\S+,\d+,request-0\n"
METRIC = r"\[METRICS\]PredictionTime\.Milliseconds:[\d.]+" + OF_MODEL.format("GAUGE")
COUNTER = r"\[METRICS\]Rows\.Count:2" + OF_MODEL.format("COUNTER")


def young_for(session: InterpreterSession, seconds: float) -> None:
    """How long a call holds TorchServe's lines."""
    session.global_("importlib", "import_module")(SERVICE_MODULE)
    session.global_("builtins", "setattr")(
        session.global_("sys", "modules")[STDIO_MODULE], "YOUNG_S", seconds
    )


@pytest.fixture
def session(manager: InterpreterManager) -> Iterator[InterpreterSession]:
    """As long as it takes: machines are busy."""
    with manager.acquire_session(timeout=60) as leased:
        young_for(leased, 1e9)
        yield leased


class Model:
    """An extracted ordinary .mar with a handler's code, and the pipes of its worker."""

    def __init__(self, directory: Path, code: str) -> None:
        (extracted(directory) / "handler.py").write_text(textwrap.dedent(code))
        # One packet for each write.
        self._out, out = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._err, err = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._theirs = out, err
        # What its model does to logging is its own affair.
        worker = token(
            out.fileno(), stderr=err.fileno(), ordinary=True, unwatched=True, model_dir=str(directory)
        )
        self._made = (
            worker.as_text(),
            otf.load("m", str(directory), handler="handler.py:handle"),
        )
        self._service: Any = None

    def close(self) -> None:
        for end in (self._out, self._err, *self._theirs):
            end.close()

    def ask(self, session: InterpreterSession, body: bytes = b"", load: bool = True) -> None:
        if self._service is None:
            self._service = session.global_(SERVICE_MODULE, SERVICE_FUNCTION)(*self._made)
            if load:
                self._service(self._made[1])
                self.written()
        self._service(otf.predict(body))

    def written(self, stream: str = "out") -> list[str]:
        """What was written since the last time, write by write."""
        found = []
        end = self._out if stream == "out" else self._err
        while True:
            try:
                found.append(end.recv(1 << 16, socket.MSG_DONTWAIT).decode())
            except BlockingIOError:
                return found


Make = Callable[..., Model]


@pytest.fixture
def model_of(tmp_path: Path) -> Iterator[Make]:
    """A model with that code."""
    with ExitStack() as stack:

        def make(code: str, directory: str = "m") -> Model:
            return stack.enter_context(closing(Model(tmp_path / directory, code)))

        yield make


def matches(patterns: list[str], written: list[str]) -> bool:
    assert len(patterns) == len(written), written
    return all(re.fullmatch(pattern, text) for pattern, text in zip(patterns, written, strict=True))


def test_all_lines_of_a_request_take_one_write(session: InterpreterSession, model_of: Make) -> None:
    model = model_of(
        """
        def handle(data, context):
            if data is not None:
                context.metrics.add_counter("Rows", 2, idx=0)
                return [b"ok"]
        """,
    )
    model.ask(session)
    model.ask(session)
    counter = (
        r"\[METRICS\]Rows\.Count:2\|#ModelName:m,Level:Model\|#type:COUNTER\|#hostname:\S+,\d+,request-0\n"
    )
    assert matches([RECEIVED + counter + METRIC] * 2, model.written())


@pytest.mark.parametrize("load", [True, False])
def test_lines_about_a_load_reach_no_handler_of_the_model_that_was_served_before(
    session: InterpreterSession, model_of: Make, tmp_path: Path, load: bool
) -> None:
    answers = """
        def handle(data, context):
            return data and [b"ok"]
        """
    file = tmp_path / "log"
    before = model_of(
        f"import logging\nlogging.getLogger().addHandler(logging.FileHandler({str(file)!r}))\n"
        + textwrap.dedent(answers)
    )
    before.ask(session)
    written = file.read_text()
    assert "Backend received" in written
    loaded = model_of(answers, "loaded")
    loaded.ask(session, load=load)
    assert load or "model_name: m" in "".join(loaded.written())
    assert file.read_text() == written


def test_a_handlers_lines_are_written_at_once_and_in_order(
    session: InterpreterSession, model_of: Make
) -> None:
    model = model_of(
        """
        import logging, os, sys
        def handle(data, context):
            if data is not None:
                print("said")
                os.write(int(data[0]["body"]), b"x")
                context.metrics.add_counter("Rows", 2)
                logging.getLogger("mine").info("logged")
                print("warned", file=sys.stderr)
                return [b"ok"]
        """,
    )
    marks, mark = os.pipe()
    model.ask(session, str(mark).encode())
    assert os.read(marks, 1) == b"x"
    assert matches([RECEIVED + "said\n", COUNTER + "logged\n", METRIC], model.written())
    assert model.written("err") == ["warned\n"]
    os.close(marks)
    os.close(mark)


def test_a_call_that_has_lasted_holds_nothing_any_more(session: InterpreterSession, model_of: Make) -> None:
    model = model_of(
        """
        def handle(data, context):
            if data is not None:
                context.metrics.add_counter("Rows", 2, idx=0)
                return [b"ok"]
        """,
    )
    young_for(session, 0)
    model.ask(session)
    assert matches([RECEIVED, COUNTER, METRIC], model.written())


def test_code_that_asks_for_the_descriptor_writes_behind_what_is_held(
    session: InterpreterSession, model_of: Make
) -> None:
    model = model_of(
        """
        import subprocess, sys
        def handle(data, context):
            if data is not None:
                subprocess.run(["echo", "said"], stdout=sys.stdout, check=True)
                return [b"ok"]
        """,
    )
    model.ask(session)
    assert matches([RECEIVED, "said\n", METRIC], model.written())


def test_lines_come_before_the_parts_of_a_streamed_answer(
    session: InterpreterSession, model_of: Make
) -> None:
    model = model_of(
        """
        from ts.handler_utils.utils import send_intermediate_predict_response
        def handle(data, context):
            if data is not None:
                try:
                    send_intermediate_predict_response(["part"], context.request_ids, "more", 200, context)
                except BrokenPipeError:  # the test has called it: there is no connection
                    return [b"ok"]
        """,
    )
    model.ask(session)
    assert matches([RECEIVED, METRIC], model.written())


def test_a_call_that_lasts_writes_what_it_holds(
    manager: InterpreterManager, model_of: Make, tmp_path: Path
) -> None:
    """The host sees to it, with each of its ticks."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    model = model_of(
        f"""
        def handle(data, context):
            if data is not None:
                open({str(gate)!r}).read()
                return [b"ok"]
        """,
    )
    pool = Pool()
    pool.manager = manager  # type: ignore[assignment]
    with manager.acquire_session(timeout=60) as session:
        young_for(session, 1e9)
        call = threading.Thread(target=model.ask, args=(session,))
        call.start()
        with gate.open("w"):
            assert model.written() == []
            early: list[str] = []

            def has_come() -> bool:
                pool.write_held_lines()
                early.extend(model.written())
                return bool(early)

            wait_for(has_come, "its line")
            assert call.is_alive()
        call.join()
    assert matches([RECEIVED, METRIC], early + model.written())


LIKE_THIS = "%(levelname)s %(filename)s %(funcName)s %(name)s %(message)s"
KEEPING = """
import logging, sys
loggers = [logging.getLogger(name) for name in ("", "ts", "ts.metrics.caching_metric")]
attributes = ("level", "handlers", "filters", "propagate", "disabled")

def keep():
    global kept
    rows = [[getattr(each, name) for name in attributes] for each in loggers]
    kept = [[list(x) if isinstance(x, list) else x for x in row] for row in rows], sys.stdout

def put_back():
    for each, row in zip(loggers, kept[0]):
        for name, value in zip(attributes, row):
            setattr(each, name, value)
        each.setLevel(each.level)
    for handler in logging.root.handlers:
        handler.setLevel(logging.NOTSET)
        handler.setFormatter(formatter)
        handler.filters.clear()
    logging.setLogRecordFactory(logging.LogRecord)
    sys.stdout = kept[1]

formatter = logging.root.handlers[0].formatter
"""


@pytest.fixture
def logging_as_it_was(session: InterpreterSession) -> Iterator[None]:
    """What a model changes of it is the interpreter's in part."""
    code = Code(session, KEEPING)
    code["keep"]()
    yield
    code["put_back"]()


@pytest.mark.usefixtures("logging_as_it_was")
@pytest.mark.parametrize(
    ("change", "received", "metric"),
    [
        (f"root.handlers[0].setFormatter(logging.Formatter({LIKE_THIS!r}))", "like this", "like this"),
        (f"logging.basicConfig(force=True, format={LIKE_THIS!r}, **out)", "like this", "like this"),
        ("root.setLevel(logging.WARNING)", "", ""),
        ("logging.disable(logging.INFO)", "", ""),
        ("root.handlers[0].setLevel(logging.WARNING)", "", ""),
        ("root.handlers[0].addFilter(lambda record: False)", "", ""),
        ("root.addFilter(lambda record: False)", "", "as ever"),
        ("root.handlers.append(logging.StreamHandler(sys.stdout))", "twice", "twice"),
        ("ts.setLevel(logging.ERROR)", "as ever", ""),
        ("ts.propagate = False", "as ever", ""),
        ("ts.addHandler(logging.StreamHandler(sys.stdout))", "as ever", "twice"),
        ("metrics.disabled = True", "as ever", ""),
        ("metrics.addFilter(lambda record: False)", "as ever", ""),
        ("sys.stdout = io.StringIO()", "as ever", "as ever"),
        (
            "logging.setLogRecordFactory(lambda *a, **k: (print('seen'), logging.LogRecord(*a, **k))[1])",
            "seen",
            "seen",
        ),
    ],
)
def test_a_models_changes_of_logging_hold_for_torchserves_lines_too(
    session: InterpreterSession, model_of: Make, change: str, received: str, metric: str
) -> None:
    model = model_of(
        f"""
        import io, logging, sys
        root, ts, metrics = map(logging.getLogger, (None, "ts", "ts.metrics.caching_metric"))
        out = dict(stream=sys.stdout, level=logging.INFO)
        def handle(data, context):
            if data is None:
                {change}
                return
            return [b"ok"]
        """,
    )
    model.ask(session)
    unnamed = RECEIVED.replace(r" \[request request-\]", "")  # a format of the model's own
    lines = {
        "": ("", ""),
        "as ever": (RECEIVED, METRIC),
        "twice": (RECEIVED + unnamed, METRIC * 2),
        "seen": ("seen\n" + RECEIVED, "seen\n" + METRIC),
        "like this": (
            "INFO otf_message_handler.py retrieve_msg root " + unnamed,
            "INFO caching_metric.py emit_metrics ts.metrics.caching_metric " + METRIC,
        ),
    }
    written = "".join(model.written())
    assert re.fullmatch(lines[received][0] + lines[metric][1], written), written


SAYS = """
    import logging
    def handle(data, context):
        if data is not None:
            logging.getLogger("mine").info("logged %d", 1)
            logging.getLogger("mine").info("[METRICS]Mine.Count:1|#Level:Model|#hostname:h,1")
            print("printed")
            raise ValueError("as you wish")
    """


def test_torchserves_lines_name_the_requests_and_a_models_own_are_as_elsewhere(
    session: InterpreterSession, model_of: Make
) -> None:
    model = model_of(SAYS)
    model.ask(session)
    lines = "".join(model.written()).splitlines()
    assert re.fullmatch(RECEIVED, lines.pop(0) + "\n")
    assert lines[:3] == ["logged 1", "[METRICS]Mine.Count:1|#Level:Model|#hostname:h,1", "printed"]
    assert lines[3] == "Invoking custom service failed. [request request-]"
    assert lines[-1] == "ValueError: as you wish"


def test_as_json_every_line_that_is_logged_in_a_call_names_its_requests(
    model_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_LOG", "json")
    model = model_of(SAYS)
    with InterpreterManager(1, preload=[SERVICE_MODULE]) as manager, manager.acquire_session() as session:
        model.ask(session)
    received, logged, metric, printed, failed = "".join(model.written()).splitlines()
    assert metric == "[METRICS]Mine.Count:1|#Level:Model|#hostname:h,1"  # which TorchServe reads
    assert printed == "printed"
    records = [json.loads(line) for line in (received, logged, failed)]
    assert [record["requests"] for record in records] == [["request-0"]] * 3
    assert [record["logger"] for record in records] == ["root", "mine", "ts.service"]
    assert records[1]["message"] == "logged 1"
    assert "ValueError: as you wish" in records[2]["exception"]
