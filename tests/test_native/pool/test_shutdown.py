"""The end of a manager and of a process, in every order; and what is said of what was left open."""

from __future__ import annotations

import gc
import itertools
import os
import re
import textwrap
import threading
import warnings
from typing import Any

import pytest
import torch
from archives import build_scale
from interpool_testing import HOLD_THE_GIL, Code, Gate, Sign, nobody_leases, printed, run_program, together
from waiting import wait_for

from interpool.native import InterpreterManager
from interpool.native.errors import PoolClosedError
from interpool.native.pool.leaks import warn_of_open_leases

pytestmark = pytest.mark.long

THINGS = ("manager", "session", "object", "tensor")
ORDERS = list(itertools.permutations(THINGS))


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, id=" ".join(order), marks=[] if i in (0, 14) else [pytest.mark.long])
        for i, order in enumerate(ORDERS)
    ],
)
def test_objects_that_belong_together_may_go_in_any_order(order: tuple[str, ...]) -> None:
    manager = InterpreterManager(1)
    session = manager.acquire_session(timeout=60)
    here: dict[str, Any] = {"manager": manager, "session": session}
    here["object"] = session.global_("counting_guest", "make")(10)
    here["tensor"] = here["object"].to_value()
    here["tensor"].owner = here["object"]  # a cycle through both Pythons
    del manager, session
    # A thread waits, and is at it when the manager goes.
    outcomes: list[str] = []
    pool = here["manager"]._pool

    def wait() -> None:
        try:
            pool.acquire("", 30.0).close()
            outcomes.append("leased")
        except PoolClosedError:
            outcomes.append("closed")

    waiting = threading.Thread(target=wait)
    waiting.start()
    for name in order:
        if name == "tensor":
            assert here[name].sum().item() == 70.0
        if name == "object":
            assert here[name].attr("shape").to_value() == (10,)
        del here[name]
        gc.collect()
    waiting.join(60)
    assert outcomes == ["leased"]  # the last that held the session gave it back
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is left open, and nothing is said
        warn_of_open_leases(pool, "at the end")
    pool.close()


def test_a_manager_closed_under_busy_threads_lets_them_finish(tmp_path: Any) -> None:
    # Sessions, models from an archive, tensors and threads that wait, all alive at the end.
    manager = InterpreterManager(1)
    model = manager.load_package(build_scale(tmp_path / "scale.pt", 3)).load_pickle("model", "model.pkl")
    barrier = threading.Barrier(9)
    closed = threading.Event()

    def work() -> tuple[int, bool]:
        barrier.wait()
        calls = 0
        try:
            while True:
                assert model(torch.ones(4)).tolist() == [3.0] * 4
                calls += 1
        except PoolClosedError:
            return calls, closed.is_set()

    def close() -> tuple[int, bool]:
        barrier.wait()
        wait_for(lambda: manager.stats()["waiting"] >= 4, "four of them to wait")
        closed.set()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # one is out, in order
            manager.close()
        return 1, True

    results = together([*[work] * 8, close])
    assert all(ended_after for _, ended_after in results)
    # What was open in it is forgotten by a visit of the pool's own.
    wait_for(lambda: nobody_leases(manager), "the interpreter's rest")


def test_a_close_names_what_was_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interpool.native.pool.leaks.PATIENCE_S", 3.0)  # for the one that is not busy
    manager = InterpreterManager(2)
    session = manager.acquire_session(timeout=60)
    numbers = [session.global_("torch", "ones")(i) for i in range(3)]
    function = session.global_("os.path", "join")
    dropped = session.from_value({})
    del dropped
    busy = manager.acquire_session(timeout=60)
    hold = Code(busy, HOLD_THE_GIL)["hold_the_gil"]
    begun = Sign()
    with Gate() as gate:
        thread = threading.Thread(target=hold, args=(gate.fd, begun.fd))
        thread.start()
        begun.wait()
        with pytest.warns(ResourceWarning) as caught:
            manager.close()
        manager.close()  # says it once
    (warning,) = caught
    title, *lines = str(warning.message).splitlines()
    assert title == "an InterpreterManager was closed with 2 leases not given back:"
    owner = r"leased \d+\.\d s ago by thread \d+ 'MainThread'"
    assert re.fullmatch(
        rf"  interpreter {session.interpreter_id}, {owner}: its session was never closed and holds "
        r"3 x torch.Tensor, 1 x posixpath.join",
        lines[0],
    )
    assert re.fullmatch(
        rf"  interpreter {busy.interpreter_id}, {owner}: its session was never closed and is busy, and "
        "what it holds is not known",
        lines[1],
    )
    assert warning.filename == __file__
    assert numbers[2].to_value().tolist() == [1.0, 1.0]  # open sessions stay good
    assert function("a", "b").to_value() == "a/b"
    thread.join(60)
    session.close()
    busy.close()


def test_the_end_of_a_process_names_what_was_left_open_and_waits_for_none_of_it() -> None:
    done = run_program(
        """
        import warnings
        warnings.simplefilter("always", ResourceWarning)
        from interpool import InterpreterManager
        from interpool.native.errors import CallTimeoutError
        from interpool.native.pool import leaks
        from interpool_testing import Code

        leaks.PATIENCE_S = 30.0
        manager = InterpreterManager(2, grace=0.2)
        # One interpreter's GIL is held for ever, and one that is leased is left behind.
        with manager.acquire_session(call_limit=2) as session:  # for what comes before, on a busy machine
            hold = Code(session, "import ctypes\\ndef hold(): ctypes.PyDLL(None).sleep(1000)")["hold"]
            try:
                hold()
            except CallTimeoutError:
                print("timed out")
        left = manager.acquire_session()
        object = left.from_value("x" * 10)
        print("end", flush=True)
        """,
    )
    assert (done.returncode, done.stdout) == (0, "timed out\nend\n")
    title, lease = [line for line in done.stderr.splitlines() if "interpreter" in line or "ended" in line]
    assert title.endswith("ResourceWarning: the process ended with 1 leases not given back:")
    assert lease.endswith("'MainThread': its session was never closed and holds 1 x str")


def test_a_process_ends_while_its_pool_grows() -> None:
    said = printed("""
        import threading, time
        from interpool import InterpreterManager

        manager = InterpreterManager(1, max_size=8)
        def nap():
            with manager.acquire_session() as session:
                session.global_("time", "sleep")(0.5)
        for _ in range(6):
            threading.Thread(target=nap, daemon=True).start()
        while not manager.stats()["growing"]:
            time.sleep(0.001)
        print("growing")
        """)
    assert said == "growing\n"


def test_a_pool_is_closed_while_a_session_closes_whose_objects_take_long_to_go() -> None:
    """Handles of it that went before are nothing that it holds any more."""
    gate = Gate()
    manager = InterpreterManager(1)
    session = manager.acquire_session(timeout=60)
    source = """
        import os
        class Slow:
            def __del__(self):
                os.write(begun, b"x")
                os.read(gate, 1)  # without the GIL
    """
    begun, begin = os.pipe()
    slow = Code(session, f"begun, gate = {begin}, {gate.fd}\n{textwrap.dedent(source)}")["Slow"]()
    dropped = [session.from_value({}) for _ in range(3)]
    dropped.clear()
    closing = threading.Thread(target=session.close)
    closing.start()
    assert os.read(begun, 1) == b"x"
    with gate, pytest.warns(ResourceWarning, match="was never closed and holds no objects"):
        manager.close()
    closing.join(60)
    assert not closing.is_alive()
    os.close(begun)
    os.close(begin)
    del slow
