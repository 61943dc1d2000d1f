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
    return state()

def state():
    return sorted(os.sched_getaffinity(0)), sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))

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


def state() -> tuple[list[int], list[int]]:
    blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    return sorted(os.sched_getaffinity(0)), blocked


def test_affinity_and_signal_mask_are_the_callers_again(session: InterpreterSession) -> None:
    code = Code(session, SOURCE)
    before = state()
    cores, blocked = code.call("change")
    assert cores == before[0][:1]
    assert signal.SIGUSR1 in blocked
    assert state() == before
    assert code.call("state") == before


def test_a_models_own_thread_may_change_its_affinity_and_signal_mask(session: InterpreterSession) -> None:
    code = Code(session, SOURCE)
    before = state()
    cores, blocked = code.call("change_on_a_thread")
    assert cores == before[0][:1]
    assert signal.SIGUSR1 in blocked
    assert state() == before
