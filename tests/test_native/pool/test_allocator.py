"""In a process with a pool, memory that a call has freed is there for the next one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

# Page faults of calls that each ask for the same blocks, write to them and free them, in a thread.
CALLS = """
import ctypes, os, resource, sys, threading
if sys.argv[1] == "pool":
    from interpool import InterpreterManager
    manager = InterpreterManager(1)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
SIZES = [3 << 20, 5 << 20, 1 << 20, 200_000] * 3

def call():
    blocks = [libc.malloc(size) for size in SIZES]
    for block, size in zip(blocks, SIZES):
        ctypes.memset(block, 1, size)
    for block in blocks:
        libc.free(block)

def faults():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

def work():
    call()
    before = faults()
    for _ in range(10):
        call()
    print((faults() - before) // 10, flush=True)

thread = threading.Thread(target=work)
thread.start()
thread.join()
os._exit(0)
"""
PAGES = 3 * ((9 << 20) + 200_000) // os.sysconf("SC_PAGE_SIZE")


def faults_of_a_call(how: str, **environment: str) -> int:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))
    }
    done = subprocess.run(
        [sys.executable, "-c", CALLS, how],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_a_call_gets_what_the_one_before_has_freed() -> None:
    assert faults_of_a_call("left alone") > PAGES / 4
    assert faults_of_a_call("pool") < PAGES / 100


@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_TRIM_THRESHOLD_", "131072"), ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072")],
)
def test_a_users_own_settings_of_malloc_are_kept(name: str, value: str) -> None:
    assert faults_of_a_call("pool", **{name: value}) > PAGES / 4
