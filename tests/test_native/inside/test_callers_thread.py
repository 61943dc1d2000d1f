"""What a model changes of the thread that it is called on is put back when the call is over."""

from __future__ import annotations

import os
import signal

from interpool_testing import Code

from interpool.native import InterpreterSession

SOURCE = """
import os, signal, threading

def change():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        os.nice(2)
    except PermissionError:  # it could not be put back
        pass
    return state()

def state():
    return sorted(os.sched_getaffinity(0)), sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), os.nice(0)

def change_on_a_thread():
    states = []
    def run():
        change()
        states.append(state())
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return states[0]
"""


def state() -> tuple[list[int], list[int], int]:
    blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    return sorted(os.sched_getaffinity(0)), blocked, os.nice(0)


def test_affinity_signal_mask_and_niceness_are_the_callers_again(session: InterpreterSession) -> None:
    code = Code(session, SOURCE)
    before = state()
    cores, blocked, niceness = code.call("change")
    assert cores == before[0][:1]
    assert signal.SIGUSR1 in blocked
    assert niceness in (before[2], before[2] + 2)
    assert state() == before
    assert code.call("state") == before


def test_a_models_own_thread_may_change_its_affinity_and_signal_mask(session: InterpreterSession) -> None:
    code = Code(session, SOURCE)
    before = state()
    cores, blocked, _ = code.call("change_on_a_thread")
    assert cores == before[0][:1]
    assert signal.SIGUSR1 in blocked
    assert state() == before
