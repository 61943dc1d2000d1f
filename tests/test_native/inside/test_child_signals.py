"""Each interpreter hears of its children's ends, whoever set a handler of SIGCHLD last."""

from __future__ import annotations

from compile import build, python_headers
from interpool_testing import assert_clean, run_program
from paths import EXTENSIONS

COMMON = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from interpool import InterpreterManager
from interpool_testing import Code, every_interpreter
from waiting import wait_for

SOURCE = '''
import signal, subprocess

def install(flags=0):
    child_signals.install(flags)

def flags():
    return child_signals.flags()

def remove():
    return child_signals.removed()

def so_far():
    return child_signals.so_far()

def run_a_child():
    subprocess.run(["true"], check=True)

def stop_a_child():
    global child
    child = subprocess.Popen(["sleep", "1000"])
    child.send_signal(signal.SIGSTOP)

def kill_it():
    child.kill()
    child.wait()
'''
"""

PROGRAM = (
    COMMON
    + """
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
)

FLAGS = (
    COMMON
    + """
RESET, ONSTACK, NOWAIT, NOSTOP = 0x80000000 - 2**32, 0x08000000, 2, 1

with InterpreterManager(2) as manager, every_interpreter(manager) as sessions:
    one, other = (Code(session, SOURCE) for session in sessions)
    for code in (one, other):
        code.import_built(Path(sys.argv[1]))

    def heard():
        return one.call("so_far"), other.call("so_far")

    one.call("install", NOSTOP | ONSTACK)
    print("reported" if one.call("flags") == NOSTOP | ONSTACK else "not reported")
    one.call("stop_a_child")
    time.sleep(0.5)
    print("no stop is heard" if heard() == (0, 0) else "a stop is heard")
    one.call("kill_it")
    wait_for(lambda: heard()[0] > 0, "the child's end")

    other.call("install")
    before = heard()
    other.call("stop_a_child")
    wait_for(lambda: heard()[1] > before[1], "the stop")
    time.sleep(0.2)
    print("one hears of stops" if heard()[0] == before[0] else "both hear of stops")
    before = heard()
    other.call("kill_it")
    wait_for(lambda: all(now > then for now, then in zip(heard(), before)), "the end")

    try:
        other.call("install", NOWAIT)
    except Exception as error:
        print("refused" if "Invalid argument" in str(error) else error)
    print("as before" if other.call("flags") == 0 else "changed")

    other.call("install", RESET)
    before = heard()
    other.call("run_a_child")
    wait_for(lambda: all(now > then for now, then in zip(heard(), before)), "the end")
    print("once" if other.call("flags") is None else "still there")
    before = heard()
    other.call("run_a_child")
    wait_for(lambda: heard()[0] > before[0], "the end")
    print("and no more" if heard()[1] == before[1] else "again")
"""
)


def _run(program: str) -> list[str]:
    source, options = EXTENSIONS / "child_signals.c", (python_headers(),)
    done = run_program(program, str(build(source, "child_signals.so", with_torch=False, options=options)))
    assert_clean(done)
    return done.stdout.splitlines()


def test_a_childs_end_is_heard_by_the_handler_of_each_interpreter_and_of_the_host() -> None:
    assert _run(PROGRAM) == ["all hear", "removed", "the host hears"]


def test_flags_of_a_handler_hold_for_it_and_for_no_other() -> None:
    assert _run(FLAGS) == [
        "reported",
        "no stop is heard",
        "one hears of stops",
        "refused",
        "as before",
        "once",
        "and no more",
    ]
