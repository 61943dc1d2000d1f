"""A process that hosts a pool ends with its own exit code and nothing on stderr, also if code runs inside."""

from __future__ import annotations

import signal

import pytest
from compile import build
from interpool_testing import assert_clean, printed, run_program
from paths import EXTENSIONS

pytestmark = pytest.mark.long

BUSY = """
import os, socket, sys, threading, time
import otf
from interpool import InterpreterManager
from interpool_testing import Code
from waiting import wait_for

SOURCE = '''
import threading, time, torch

def compute():
    x = torch.ones(64, 64, requires_grad=True)
    while True:
        (x @ x).sum().backward()

def python():
    while True:
        sum(range(1000))

def sleep():
    time.sleep(1000)

def wait_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def start_thread():
    threading.Thread(target=compute).start()
'''

def inside(name, *args):
    with manager.acquire_session() as session:
        code = Code(session, SOURCE)
        started.release()
        code[name](*args)

started = threading.Semaphore(0)
manager = InterpreterManager(2)

def go(*works):
    for work in works:
        threading.Thread(target=work[0], args=work[1:], daemon=True).start()
        started.acquire()
    time.sleep(0.3)
"""


@pytest.mark.parametrize(
    "source",
    [
        'go((inside, "compute"), (inside, "python"))',
        pytest.param('go((inside, "sleep"), (inside, "wait_for_a_lock"))', marks=pytest.mark.long),
        """
session = manager.acquire_session()
Code(session, SOURCE)["start_thread"]()
kept = session.global_("counting_guest", "make")(10).to_value()
time.sleep(0.3)
""",
    ],
    ids=["computing", "waiting", "in a thread of the model's"],
)
def test_a_host_ends_while_interpreters_are_at_work(source: str) -> None:
    done = run_program(BUSY + source + "\nprint('end', flush=True)\nsys.exit(3)\n")
    assert_clean(done, returncode=3)
    assert done.stdout == "end\n"


HOST = """
import ctypes, os, sys, threading
from interpool import InterpreterManager
from interpool_testing import Code

ctypes.CDLL(sys.argv[1])  # before the pool exists
"""


def _exit_functions() -> str:
    return str(build(EXTENSIONS / "at_exit.c", "at_exit.so", with_torch=False))


def test_exit_functions_of_the_host_run_and_what_models_print_is_not_lost() -> None:
    done = run_program(
        HOST
        + """
manager = InterpreterManager(2)
for instance in manager.all_instances():
    with instance.acquire_session() as session:
        code = Code(session, '''
import threading, torch
def compute():
    x = torch.ones(64, 64, requires_grad=True)
    (x @ x).sum().backward()
    other = threading.Thread(target=torch.ones, args=(3,))
    other.start()
    other.join()
''')
        code["compute"]()
        session.global_("builtins", "print")(f"from {instance.interpreter_id}")
print("end", flush=True)
sys.exit(3)
""",
        _exit_functions(),
    )
    assert_clean(done, returncode=3)
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith("from")] == ["end", "exit function", "destructor"]
    assert sorted(line for line in lines if line.startswith("from")) == ["from 1", "from 2"]


@pytest.mark.parametrize("started_by", ["python", "c++"])
def test_nothing_is_torn_down_under_a_thread_of_the_models(started_by: str) -> None:
    extension = build(EXTENSIONS / "busy_thread.cpp", "busy_thread.so", with_torch=True)
    done = run_program(
        HOST
        + """
from pathlib import Path
manager = InterpreterManager(2)
with manager.acquire_session() as session:
    code = Code(session, '''
import threading
def start(started_by):
    if started_by == "python":
        threading.Thread(target=busy_thread.compute, daemon=True).start()
    else:
        busy_thread.start()
''')
    code.import_built(Path(sys.argv[2]))
    code["start"](sys.argv[3])
print("end", flush=True)
sys.exit(3)
""",
        _exit_functions(),
        str(extension),
        started_by,
    )
    assert_clean(done, returncode=3)
    assert done.stdout == "end\n"


def test_a_host_ends_with_connections_open_and_one_being_answered() -> None:
    said = printed(
        BUSY
        + """
ends = []
for i in range(4):
    here, there = socket.socketpair()
    done = os.eventfd(0)
    ends.append((here, manager.serve(
        there.detach(), module="serving_guest", function="follow", worker="w", affinity="a", done_fd=done)))
    here.sendall(otf.load())
    assert here.recv(3) == b"ok\\n"
ends[0][0].sendall(otf.predict(b"(slow)"))
ends[1][0].sendall(b"I")
wait_for(lambda: any(entry["leased"] for entry in manager.stats()["interpreters"]), "the call to begin")
for here, _ in ends:
    here.detach()  # stays open to the very end
print("end")
"""
    )
    assert said == "end\n"


def test_a_signal_ends_the_process_while_interpreters_are_at_work() -> None:
    done = run_program(
        BUSY
        + """
import signal
go((inside, "compute"), (inside, "sleep"))
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(30)
"""
    )
    assert_clean(done, returncode=-signal.SIGTERM)


def test_ctrl_c_reaches_the_host_while_interpreters_are_at_work() -> None:
    said = printed(
        BUSY
        + """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
go((inside, "sleep"),)
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted")
with manager.acquire_session() as session:
    print(session.from_value("goes on").to_value())
"""
    )
    assert said == "interrupted\ngoes on\n"


def test_tensors_of_interpreters_in_globals_of_the_host_do_no_harm_at_the_end() -> None:
    said = printed("""
        import atexit
        from interpool import InterpreterManager

        class Late:
            def __del__(self):
                self.tensor.sum()

        manager = InterpreterManager(1)
        session = manager.acquire_session()
        late = Late()
        late.tensor = session.global_("counting_guest", "make")(100).to_value()
        late.me = late
        object = session.global_("counting_guest", "make")(100)
        atexit.register(lambda: print(object.attr("sum")().to_value().item()))
        """)
    assert said == "700.0\n"


def test_a_forked_child_ends_by_itself_and_leaves_the_interpreters_alone() -> None:
    said = printed("""
        import atexit, os, sys, threading, time, warnings
        from interpool import InterpreterManager
        from interpool.native import _native
        from interpool_testing import Code

        warnings.simplefilter("ignore", DeprecationWarning)  # Python's own, of forks beside threads
        parent = os.getpid()

        def tell():
            if os.getpid() != parent:
                print("child:", [pool.is_closed for pool in _native.pools()], flush=True)

        atexit.register(tell)  # before the pool's own: it is called after them

        def compute(manager):
            with manager.acquire_session() as session:
                Code(session, "def run():\\n while True: sum(range(1000))")["run"]()

        managers = [InterpreterManager(2) for _ in range(2)]
        threading.Thread(target=compute, args=managers[:1], daemon=True).start()
        session = managers[1].acquire_session()
        kept = session.global_("torch", "ones")(3)
        time.sleep(0.3)
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            print(kept.attr("sum")().attr("item")().to_value())
        else:
            sys.exit(4)
        """)
    assert said == "child: [False, False]\n4\n3.0\n"


def test_a_thread_that_reads_from_c_does_not_delay_the_end() -> None:
    printed(
        """
        import ctypes, os, sys, threading, time
        from interpool import InterpreterManager
        from interpool_testing import Code

        reading, _writing = os.pipe()  # nothing is written to it
        os.dup2(reading, 0)
        SOURCE = '''
        import ctypes, threading
        def read():
            threading.Thread(target=ctypes.CDLL("libc.so.6").getchar, daemon=True).start()
        '''
        manager = InterpreterManager(1)
        session = manager.acquire_session()
        Code(session, SOURCE)["read"]()
        time.sleep(0.3)
        session.close()
        manager.close()
        """,
        timeout=120,
    )
