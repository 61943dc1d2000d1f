"""`interpool doctor --run`: whether a function computes in private interpreters, and why not."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from interpool.handler.cli import main
from interpool.native.diagnostics.computation import difference, repeat
from interpool.native.diagnostics.run_trial import Status, try_call

PRELUDE = """\
import os, time
from interpool.native.inside import interpreter_id
inside = interpreter_id() or 0
"""
# Each can be imported everywhere, and computes in an ordinary Python.
FUNCTIONS = {
    "adding": "return [sum(range(10)), 'ü']",
    "crashing": """
        import ctypes
        if inside:
            getattr(ctypes.CDLL(None), "raise")(11)
        """,
    "wrong": "return [1, 2, 3, inside]",
    "raising": """
        if inside:
            raise LookupError("not in here\\nsecond line")
        """,
    "hanging": """
        if inside:
            time.sleep(1000)
        """,
    # One for the process, of which the second interpreter finds the first's.
    "sharing": """
        mine = f"{__file__}-{os.getpid()}-{inside}"
        open(mine, "w")
        others = [name for name in os.listdir(os.path.dirname(__file__)) if f"-{os.getpid()}-" in name]
        return sum(not name.endswith("-0") for name in others) > 1
        """,
    "beside_the_host": """
        host = f"{__file__}-{os.getpid()}"
        if not inside:
            open(host, "w")
        return bool(inside and os.path.exists(host))
        """,
    "unsteady": "return object()",
    "broken": "raise LookupError('of its own')",
}


@pytest.fixture
def function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Makes one of FUNCTIONS importable in processes to come, and gives its name."""

    def make(name: str) -> str:
        body = textwrap.indent(textwrap.dedent(FUNCTIONS[name]), "    ")
        (tmp_path / f"{name}_trial.py").write_text(f"{PRELUDE}def work():\n    pass\n{body}\n")
        return f"{name}_trial:work"

    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return make


@pytest.mark.long
def test_the_command_tells_what_computes_and_what_crashes_only_when_it_is_used(
    function: Callable[[str], str], tmp_path: Path
) -> None:
    good, bad = function("adding"), function("crashing")
    done = CliRunner().invoke(main, ["doctor", "--imports", "crashing_trial"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("imports  crashing_trial: into two interpreters at once, ")
    assert done.output.endswith("`interpool doctor --run module:function` tells\n")
    done = CliRunner().invoke(main, ["doctor", "--run", good, bad])
    assert done.exit_code == 1, done.output
    computes, crashed, fix = done.output.splitlines()
    assert computes.startswith(
        f"ok    run {good}: the right answer from two interpreters and the host at once, "
    )
    where = f"{tmp_path}/crashing_trial.py:9 in work"
    reason = f"it crashed with SIGSEGV, at {where}; an ordinary Python computes it"
    assert crashed == f"FAIL  run {bad}: {reason}"
    assert fix.startswith("      fix: serve the models that need it by TorchServe's stock workers")


def test_calls_go_on_at_once_for_a_while(function: Callable[[str], str]) -> None:
    verdict = try_call(function("adding"))
    assert verdict.status is Status.COMPUTES
    assert verdict.calls >= 3 * 10
    assert verdict.seconds >= 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--run"], "so do --run and functions'"),
        (["--run", "--imports", "numpy"], "are different questions"),
        (["--run", "numpy"], "--run takes MODULE:FUNCTION, and 'numpy' is no such thing"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["doctor", *arguments])
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", "").split())


@pytest.mark.parametrize(
    ("call", "status", "failure"),
    [
        ("no_such_module:work", Status.MISSING, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("json:no_such_function", Status.MISSING, "AttributeError: module 'json' has no attribute"),
    ],
)
def test_what_an_ordinary_python_does_not_find_is_missing(call: str, status: Status, failure: str) -> None:
    verdict = try_call(call)
    assert verdict.status is status
    assert verdict.failure.startswith(failure)


@pytest.mark.parametrize(
    ("name", "status", "failure"),
    [
        ("broken", Status.BROKEN, "LookupError: of its own"),
        ("unsteady", Status.UNSTEADY, "a wrong answer: …"),
    ],
)
def test_what_does_not_compute_anywhere_is_no_matter_of_private_interpreters(
    function: Callable[[str], str], name: str, status: Status, failure: str
) -> None:
    verdict = try_call(function(name))
    assert verdict.status is status
    assert verdict.failure.startswith(failure)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "status", "failure"),
    [
        ("wrong", Status.NEVER, "a wrong answer: …[1, 2, 3, 1]… instead of …[1, 2, 3, 0]…"),
        ("raising", Status.NEVER, "LookupError: not in here"),
        ("hanging", Status.NEVER, "it was not done after 5 s"),
        ("sharing", Status.ONE, "a wrong answer: …True… instead of …False…"),
        ("beside_the_host", Status.HOST, "a wrong answer: …True… instead of …False…"),
    ],
)
def test_the_reason_is_told(function: Callable[[str], str], name: str, status: Status, failure: str) -> None:
    verdict = try_call(function(name), seconds=5 if name == "hanging" else 60)
    assert (verdict.status, verdict.failure) == (status, failure)


def test_a_call_is_repeated_until_its_answer_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([1, 1, 1, 2, 1])
    monkeypatch.setattr("json.trial", lambda: next(answers), raising=False)
    assert repeat("json:trial", "", 10, 0.0) == ["4", "1", "a wrong answer: …2… instead of …1…"]


def test_long_answers_are_compared_whole_and_shown_where_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["a" * 20_000, f"{'a' * 19_999}b"])
    monkeypatch.setattr("json.trial", lambda: next(answers), raising=False)
    calls, _, failure = repeat("json:trial", "", 2, 0.0)
    assert calls == "2"
    assert failure.startswith("a wrong answer: …")
    assert difference("x" * 50 + "1" * 100, "x" * 50 + "2" * 100).startswith(f"a wrong answer: …{'x' * 20}1")
