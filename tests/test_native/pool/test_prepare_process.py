"""Preparing the process for interpreters: a failure leaves nothing behind, and many may begin at once."""

from __future__ import annotations

import pytest
from interpool_testing import printed

PROGRAM = """
import atexit
import sys
from pathlib import Path
from interpool import InterpreterManager
from interpool.native import _native, provision
from interpool.native.pool import manager
from interpool.native.errors import InterpreterStartError
from interpool_testing import together

at_exit = []
register = atexit.register
atexit.register = lambda function, *rest: (at_exit.append(function), register(function, *rest))[1]

copies = provision.present_copies()
references = sys.getrefcount(copies)
found = provision.torch_libraries
provision.torch_libraries = lambda: Path("/nowhere/torch/lib")
for _ in range(2):
    try:
        InterpreterManager(1)
    except InterpreterStartError as error:
        assert "/nowhere/torch/lib/libc10.so cannot be loaded" in str(error), error
    else:
        raise AssertionError("it was prepared")
assert at_exit == [], at_exit
assert sys.getrefcount(copies) == references  # what failed keeps nothing
provision.torch_libraries = found

def work():
    with InterpreterManager(1) as pool, pool.acquire_session() as session:
        return session.global_("torch", "ones")([2]).attr("sum")().attr("item")().to_value()

assert together([work] * 3) == [2.0] * 3
assert len(at_exit) == 2, at_exit  # the process's, and the look at open leases

# Later ones do nothing, and keep nothing.
def never(*_):
    raise AssertionError("asked for a copy")

references = sys.getrefcount(never)
_native.prepare(**{**manager.installation(), "interposer": "/nowhere"},
                private_copy=never, libpython_copy=never)
assert sys.getrefcount(never) == references
assert work() == 2.0
assert len(at_exit) == 2, at_exit
print("done")
"""


@pytest.mark.long
def test_a_failure_can_be_repaired_and_one_of_many_prepares_the_process() -> None:
    assert printed(PROGRAM) == "done\n"


def test_an_interpreter_that_cannot_be_started_says_why_and_leaves_no_thread_behind() -> None:
    said = printed("""
        import os
        from interpool import InterpreterManager
        from interpool.native.errors import InterpreterStartError
        from interpool.native.pool import manager
        from waiting import wait_for

        def main_threads():
            count = 0
            for thread in os.listdir("/proc/self/task"):
                try:
                    with open(f"/proc/self/task/{thread}/comm") as name:
                        count += name.read() == "interpool-main\\n"
                except OSError:  # it has ended meanwhile
                    pass
            return count

        found = manager.installation
        manager.installation = lambda: {**found(), "loader": "/nowhere/loader.py"}
        try:
            InterpreterManager(1)
        except InterpreterStartError as error:
            print(error)
        wait_for(lambda: main_threads() == 1, "the interpreter's thread to end; the host's own stays")
        """)
    assert said == "/nowhere/loader.py cannot be read; reinstall interpool.\n"
