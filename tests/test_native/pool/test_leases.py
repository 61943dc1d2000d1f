"""Who gets an interpreter, when, and for how long."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from archives import build_package
from interpool_testing import every_interpreter, nobody_leases, printed
from waiting import wait_for

from interpool.native import InterpreterManager
from interpool.native.errors import LeaseTimeoutError


def test_the_pool_leases_no_more_than_it_has_and_waits_no_longer_than_the_timeout(
    manager: InterpreterManager,
) -> None:
    with every_interpreter(manager):
        for timeout in (0, 0.2):
            start = time.monotonic()
            with pytest.raises(LeaseTimeoutError, match=f"all {len(manager)} are leased"):
                manager.acquire_session(timeout=timeout)
            assert timeout <= time.monotonic() - start < 60


def test_a_session_without_references_gives_its_interpreter_back(manager: InterpreterManager) -> None:
    sessions = [manager.acquire_session(timeout=60) for _ in range(len(manager))]
    with pytest.raises(LeaseTimeoutError):
        manager.acquire_session(timeout=0.01)
    del sessions
    manager.acquire_session(timeout=60).close()


def test_an_object_keeps_its_session_alive(manager: InterpreterManager) -> None:
    value = manager.acquire_session(timeout=60).from_value("kept")
    assert value.to_value() == "kept"
    del value
    wait_for(lambda: nobody_leases(manager), "the lease to be given back")


def test_a_pool_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one interpreter, not 0"):
        InterpreterManager(0)


def test_leases_and_what_they_waited_are_counted_for_each_model(manager: InterpreterManager) -> None:
    manager.forget("counted")
    bounds = manager.stats()["time_bounds_s"]
    one = manager.all_instances()[0]
    with one.acquire_session(timeout=60, affinity="counted"):
        stats = manager.stats()
        (mine,) = [each for each in stats["interpreters"] if each["model"] == "counted"]
        assert (mine["interpreter"], mine["state"]) == (one.interpreter_id, "leased")
        assert mine["seconds"] >= 0
        assert "counted" in mine["affinities"]
        assert stats["models"]["counted"]["running"] == 1
    counted = manager.stats()["models"]["counted"]
    assert (counted["leases"], sum(counted["waits"]), counted["waiting"]) == (1, 1, 0)
    assert (counted["running"], counted["share"]) == (0, None)
    assert len(counted["waits"]) == len(counted["leased"]) == len(bounds) + 1
    assert sum(counted["leased"]) == 1
    assert counted["leased_s"] > 0
    assert all(each["model"] != "counted" for each in manager.stats()["interpreters"])
    for instance in reversed(manager.all_instances()):  # which has it last
        assert "counted" in manager.stats()["interpreters"][0]["affinities"]
        manager.forget("counted", instance.interpreter_id)
    assert "counted" not in manager.stats()["interpreters"][0]["affinities"]
    manager.forget("counted")
    assert "counted" not in manager.stats()["models"]


@pytest.mark.long
def test_ctrl_c_ends_a_wait_for_an_interpreter(tmp_path: Path) -> None:
    path = build_package(
        tmp_path / "texts.pt",
        {"nothing_much.py": "def make(): return 7"},
        "nothing_much:make",
        texts={"labels.txt": "cat\n"},
    )
    said = printed(
        """
        import os, signal, sys, threading
        from interpool import InterpreterManager
        from waiting import wait_for

        def press():
            wait_for(lambda: manager.stats()["waiting"] == 1, "a thread to wait")
            os.kill(os.getpid(), signal.SIGINT)

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        with InterpreterManager(1) as manager:
            package = manager.load_package(sys.argv[1])
            model = package.load_pickle("model", "model.pkl")
            with manager.acquire_session():
                for name, wait in {
                    "session": manager.acquire_session,
                    "session of a package": package.acquire_session,
                    "session of an object": model.acquire_session,
                    "call": model,
                    "pickle": lambda: package.load_pickle("model", "model.pkl"),
                    "binary": lambda: package.load_binary("model", "labels.txt"),
                    "text": lambda: package.load_text("model", "labels.txt"),
                }.items():
                    pressing = threading.Thread(target=press)
                    pressing.start()
                    try:
                        wait()
                    except KeyboardInterrupt:
                        print(name)
                    pressing.join()
            print(package.load_text("model", "labels.txt"), end="")  # no thread waits in line any more
        """,
        str(path),
    )
    assert said.splitlines() == [
        "session",
        "session of a package",
        "session of an object",
        "call",
        "pickle",
        "binary",
        "text",
        "cat",
    ]
