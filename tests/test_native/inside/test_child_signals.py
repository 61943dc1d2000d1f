"""Each interpreter learns of its children's ends, even if another one set a handler of SIGCHLD last."""

from __future__ import annotations

import pytest
from compile import build, python_headers
from interpool_testing import printed
from paths import EXTENSIONS

PROGRAM = """
import signal, subprocess, sys
from pathlib import Path
from interpool import InterpreterManager
from interpool_testing import Code, every_interpreter
from waiting import wait_for

SOURCE = '''
import subprocess

def install():
    child_signals.install()

def remove():
    return child_signals.removed()

def so_far():
    return child_signals.so_far()

def run_a_child():
    subprocess.run(["true"], check=True)
'''

heard = 0
def count(*_):
    global heard
    heard += 1
signal.signal(signal.SIGCHLD, count)

with InterpreterManager(2) as manager, every_interpreter(manager) as sessions:
    one, other = (Code(session, SOURCE) for session in sessions)
    for code in (one, other):
        code.import_built(Path(sys.argv[1]))
        code.call("install")
    for code in (one, other):
        counts = lambda: (heard, one.call("so_far"), other.call("so_far"))
        before = counts()
        code.call("run_a_child")
        wait_for(lambda: all(now > then for now, then in zip(counts(), before)), "the signal")
    print("all hear")
    assert other.call("remove") is True
    before = one.call("so_far"), other.call("so_far")
    other.call("run_a_child")
    wait_for(lambda: one.call("so_far") > before[0], "the signal")
    print("removed" if other.call("so_far") == before[1] else "not removed")
    before = heard
    subprocess.run(["true"], check=True)
    wait_for(lambda: heard > before, "the signal")
    print("the host hears")
"""


@pytest.mark.long
def test_a_childs_end_is_heard_by_the_handler_of_each_interpreter_and_of_the_host() -> None:
    source, options = EXTENSIONS / "child_signals.c", (python_headers(),)
    said = printed(PROGRAM, str(build(source, "child_signals.so", with_torch=False, options=options)))
    assert said.splitlines() == ["all hear", "removed", "the host hears"]
