"""Ordinary Python inside an interpreter: threads, asyncio, subprocesses, logging; and what is refused."""

from __future__ import annotations

import os
import sys

import pytest
import torch
from interpool_testing import Code, every_interpreter, printed, together
from waiting import wait_for

from interpool.native import InterpreterManager, InterpreterSession
from interpool.native.errors import InterpoolError, RemoteError

THREADS = """
import threading, time, torch
from concurrent.futures import ThreadPoolExecutor

def work(i):
    x = torch.full((32, 32), float(i), requires_grad=True)
    (x @ x).sum().backward()
    return x.grad[0, 0].item()

def by_thread(count):
    results = {}
    threads = [
        threading.Thread(target=lambda i=i: results.__setitem__(i, work(i))) for i in range(count)
    ]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return [results[i] for i in range(count)]

def by_pool(count):
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, range(count)))

ticks = 0
stop = threading.Event()

def start_ticking():
    def tick():
        global ticks
        while not stop.wait(0.001):
            ticks += int((torch.ones(3) * 2).sum().item()) // 6
    threading.Thread(target=tick, daemon=True).start()

def ticked():
    return ticks
"""
EXPECTED = [64.0 * i for i in range(8)]


def test_threads_that_a_model_starts_compute_with_torch(manager: InterpreterManager) -> None:
    with every_interpreter(manager, 2) as sessions:
        codes = [Code(session, THREADS) for session in sessions]
        assert together([lambda code=code: code.call("by_thread", 8) for code in codes]) == [EXPECTED] * 2  # type: ignore[misc]
        assert together([lambda code=code: code.call("by_pool", 8) for code in codes]) == [EXPECTED] * 2  # type: ignore[misc]


def test_a_thread_of_a_models_runs_on_between_sessions(manager: InterpreterManager) -> None:
    with manager.acquire_session(timeout=60) as session:
        code = Code(session, THREADS)
        code["start_ticking"]()
        before = code.call("ticked")
        # Nearly all of the time is outside of any call: the interpreter's GIL is free.
        wait_for(lambda: code.call("ticked") > before, "the thread to run", pause=0.3)
        code["stop"].attr("set")()


def test_the_state_of_threads_that_ended_does_not_pile_up(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import gc, threading, weakref
        local, alive = threading.local(), weakref.WeakSet()
        class Thing: pass
        def remember():
            local.thing = Thing()
            alive.add(local.thing)
        def count():
            return len(alive), len(__import__("sys")._current_frames())
        """,
    )
    before = code.call("count")
    for _ in range(10):
        together([code["remember"]] * 4)

    def is_gone() -> bool:
        return all(now <= then for now, then in zip(code.call("count"), before, strict=True))

    wait_for(is_gone, lambda: f"{before}, which are {code.call('count')}")


def test_asyncio_runs(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import asyncio, sys, torch

        async def produce(queue):
            for i in range(3):
                await asyncio.sleep(0.001)
                await queue.put(torch.tensor(i))
            await queue.put(None)

        async def consume():
            queue, total = asyncio.Queue(), 0
            task = asyncio.create_task(produce(queue))
            while (item := await queue.get()) is not None:
                total += item.item() + await asyncio.to_thread(lambda: torch.ones(10).sum().item())
            await task
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "print(6 * 7)", stdout=asyncio.subprocess.PIPE
            )
            output, _ = await process.communicate()
            return total, output.decode()

        def main():
            return asyncio.run(consume())
        """,
    )
    assert code.call("main") == (33, "42\n")


@pytest.mark.long
def test_a_subprocess_runs_and_is_an_ordinary_python(session: InterpreterSession) -> None:
    source = (
        "import torch; from interpool.native.inside import interpreter_id; "
        "print(torch.ones(2).sum().item(), interpreter_id())"
    )
    command = [session.global_("sys", "executable").to_value(), "-c", source]
    output = session.global_("subprocess", "check_output")(command, text=True).to_value()
    assert output == "2.0 None\n"


def test_sys_path_is_what_the_hosts_was(session: InterpreterSession) -> None:
    inside = session.global_("sys", "path").to_value()
    assert {entry for entry in sys.path if entry and os.path.isdir(entry)} <= {*inside}


def test_logging_warnings_and_prints_reach_the_processs_streams(
    session: InterpreterSession, capfd: pytest.CaptureFixture[str]
) -> None:
    code = Code(
        session,
        """
        import logging, sys, warnings
        def speak():
            logging.getLogger("inside").warning("logged")
            with warnings.catch_warnings():
                warnings.simplefilter("always")  # whatever tests before this one left
                warnings.warn("warned")
            print("printed ä", flush=True)
            print("to stderr", file=sys.stderr)
        """,
    )
    code["speak"]()
    output = capfd.readouterr()
    assert output.out == "printed ä\n"
    for said in ("logged", "UserWarning: warned", "to stderr"):
        assert said in output.err


# Of multiprocessing until 3.13; later a process that was started for it forks.
FORK_BY_DEFAULT = [
    "multiprocessing.Process(target=print).start()",
    "concurrent.futures.ProcessPoolExecutor(1).submit(print)",
    "next(iter(torch.utils.data.DataLoader([1, 2], num_workers=1)))",
]


@pytest.mark.long
@pytest.mark.parametrize(
    "expression",
    [
        "os.fork()",
        "posix.forkpty()",
        "pty.fork()",
        "multiprocessing.get_context('fork').Process(target=print).start()",
        "subprocess.run(['true'], preexec_fn=print)",
        *(FORK_BY_DEFAULT if sys.version_info < (3, 14) else ()),
    ],
)
def test_fork_is_refused_with_what_to_do_instead(session: InterpreterSession, expression: str) -> None:
    code = Code(
        session,
        f"""
        import concurrent.futures, multiprocessing, os, posix, pty, subprocess, torch
        def fork(): {expression}
        """,
    )
    with pytest.raises(RemoteError, match=r"fork inside a private interpreter.*subprocess"):
        code["fork"]()


@pytest.mark.skipif(sys.version_info < (3, 14), reason="has no public way to make one")
def test_subinterpreters_are_refused_with_what_to_do_instead(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import concurrent.interpreters
        def create():
            concurrent.interpreters.create()
        """,
    )
    with pytest.raises(RemoteError, match=r"a subinterpreter inside a private interpreter.*threads"):
        code["create"]()


def test_torch_distributed_is_there_and_a_group_of_one_works(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import torch, torch.distributed as dist
        def reduced():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            try:
                x = torch.ones(3)
                dist.all_reduce(x)
                return dist.is_available(), dist.get_world_size(), x.tolist()
            finally:
                dist.destroy_process_group()
        """,
    )
    assert code.call("reduced") == (True, 1, [1, 1, 1])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_multiprocessing_works_by_processes_that_are_started(
    session: InterpreterSession, method: str
) -> None:
    code = Code(
        session,
        f"""
        import math, multiprocessing
        def compute():
            with multiprocessing.get_context({method!r}).Pool(1) as pool:
                return pool.map(math.sqrt, [4, 9])
        """,
    )
    assert code.call("compute") == [2, 3]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="multiprocessing forks by default")
def test_multiprocessings_default_works(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import concurrent.futures, math, multiprocessing, torch
        def compute():
            with multiprocessing.Pool(1) as pool, concurrent.futures.ProcessPoolExecutor(1) as executor:
                loaded = torch.utils.data.DataLoader([1, 2], num_workers=1)
                return [*pool.map(math.sqrt, [4, 9]), *executor.map(math.sqrt, [16]), *map(int, loaded)]
        """,
    )
    assert code.call("compute") == [2, 3, 4, 1, 2]


@pytest.mark.long
def test_text_is_utf8_in_every_locale() -> None:
    said = printed("""
        import os
        os.environ["LC_ALL"] = "C"
        from interpool import InterpreterManager
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            print(ascii(session.global_("os", "fsdecode")("ä€".encode()).to_value()))
            print(session.global_("sys", "flags").attr("utf8_mode").to_value())
        """)
    assert said == "'\\xe4\\u20ac'\n1\n"


def test_a_pool_inside_a_pool_is_refused(session: InterpreterSession) -> None:
    with pytest.raises(InterpoolError):
        session.global_("interpool", "InterpreterManager")(1)
    parameter = torch.nn.Parameter(torch.ones(2))
    shown = session.global_("builtins", "repr")(parameter).to_value()
    assert shown == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    assert parameter.sum().item() == 2
