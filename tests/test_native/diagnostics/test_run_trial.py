"""`interpool doctor --run`: whether a function computes in private interpreters, and why not."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from interpool.handler.cli import main
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
def test_the_command_shows_what_computes_and_what_crashes_only_in_use(
    function: Callable[[str], str], tmp_path: Path
) -> None:
    good, bad = function("adding"), function("crashing")
    done = CliRunner().invoke(main, ["doctor", "--imports", "crashing_trial"])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("imports  crashing_trial: into two interpreters at once, ")
    assert done.stdout.endswith("`interpool doctor --run module:function` tells\n")
    done = CliRunner().invoke(main, ["doctor", "--run", good, bad])
    assert done.exit_code == 1, done.output
    computes, crashed, fix = done.stdout.splitlines()
    assert computes.startswith(
        f"ok    run {good}: the right answer from two interpreters and the host at once, "
    )
    where = f"{tmp_path}/crashing_trial.py:9 in work"
    reason = f"it crashed with SIGSEGV, at {where}; an ordinary Python computes it"
    assert crashed == f"FAIL  run {bad}: {reason}"
    assert fix.startswith("      fix: serve the models that need it by TorchServe's stock workers")


@pytest.mark.parametrize(
    ("call", "status", "failure"),
    [
        ("no_such_module:work", Status.MISSING, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("json:no_such_function", Status.MISSING, "AttributeError: module 'json' has no attribute"),
    ],
)
def test_a_module_that_an_ordinary_python_does_not_find_is_missing(
    call: str, status: Status, failure: str
) -> None:
    verdict = try_call(call)
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
def test_a_failed_run_says_why(
    function: Callable[[str], str], name: str, status: Status, failure: str
) -> None:
    verdict = try_call(function(name), seconds=5 if name == "hanging" else 60)
    assert (verdict.status, verdict.failure) == (status, failure)
