"""What is left of a closed pool: interpreters that are not leased serve the next one."""

from __future__ import annotations

import pytest
from interpool_testing import printed, run_program

pytestmark = pytest.mark.long

PROGRAM = """
import os, sys, time
from interpool.native import InterpreterManager

def instances(manager):
    return sorted(manager._pool.instances())

def mappings():
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)

def threads():
    return len(os.listdir("/proc/self/task"))
"""


def test_opening_and_closing_leaves_neither_memory_nor_threads_behind() -> None:
    said = printed(
        PROGRAM
        + """
with InterpreterManager(2) as manager:
    assert instances(manager) == [1, 2]
before = mappings(), threads()
for _ in range(8):
    with InterpreterManager(2) as manager:
        assert instances(manager) == [1, 2]
        assert len(manager) == 2
    with InterpreterManager(1) as manager:
        assert instances(manager) in ([1], [2])
assert mappings() <= before[0] + 20, (mappings(), before)
for _ in range(600):  # threads that end are counted for a moment longer
    if threads() <= before[1]:
        break
    time.sleep(0.1)
assert threads() <= before[1]
with InterpreterManager(2) as manager, manager.acquire_session() as session:
    assert session.global_("math", "sqrt")(4).to_value() == 2
print("done")
"""
    )
    assert said == "done\n"


def test_interpreters_that_were_leased_or_made_otherwise_are_not_taken_over() -> None:
    said = printed(
        PROGRAM
        + """
with InterpreterManager(2) as manager:
    manager.register_module_source("of_the_first_pool", "x = 1")
    with manager.acquire_session() as session:
        used = session.interpreter_id
        session.global_("sys", "path").attr("append")("/somewhere")
        unused = (set(instances(manager)) - {used}).pop()
os.environ["OF_THE_SECOND_POOL"] = "1"
with InterpreterManager(1) as manager:
    assert instances(manager) == [3]
    with manager.acquire_session() as session:
        assert session.global_("os", "environ").item("OF_THE_SECOND_POOL").to_value() == "1"
del os.environ["OF_THE_SECOND_POOL"]
with InterpreterManager(1) as manager:
    assert instances(manager) == [unused]
    with manager.acquire_session() as session:
        assert "/somewhere" not in list(session.global_("sys", "path").to_value())
        try:
            session.global_("of_the_first_pool", "x")
        except Exception as error:
            assert error.type_name == "ModuleNotFoundError", error
        else:
            raise AssertionError("the first pool's module is there")
print("done")
"""
    )
    assert said == "done\n"


def test_a_start_without_mappings_says_so_and_a_later_one_succeeds() -> None:
    done = run_program(
        PROGRAM
        + """
import ctypes
with InterpreterManager(1):
    pass
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
most = int(open("/proc/sys/vm/max_map_count").read())
if most > 1 << 20:
    sys.exit("skipped")
PAGE, ANONYMOUS = 4096, 0x22
count = most - mappings() - 60  # an interpreter takes 100 and more
size = (count + 2) * PAGE
base = libc.mmap(None, size, 0, ANONYMOUS, -1, 0)
for i in range(1, count, 2):  # every other page becomes a mapping, and so does each between
    assert libc.mprotect(base + i * PAGE, PAGE, 1) == 0
try:
    InterpreterManager(2)
except Exception as error:
    print(type(error).__name__, "vm.max_map_count" in str(error), "have fewer interpreters" in str(error))
libc.munmap(base, size)
with InterpreterManager(2) as manager, manager.acquire_session() as session:
    assert 1 in instances(manager)
    print(session.global_("math", "sqrt")(4).to_value())
"""
    )
    if done.stderr == "skipped\n":
        return
    assert done.stdout == "InterpreterStartError True True\n2.0\n", done.stderr
    assert done.returncode == 0
