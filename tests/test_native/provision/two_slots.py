"""A program: two private interpreters import numpy at once through their private copies.

The interpreters ask this process for every extension's copy over a pipe, as
nothing else can be loaded in them before.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from importlib.metadata import distribution

from interpool.native import provision

INSIDE = """
import importlib._bootstrap_external as external, _imp, posix, sys

def ask(path):
    posix.write({ask}, path.encode() + b"\\n")
    return posix.read({answer}, 4096).decode()

def create_module(self, spec):
    original, spec.origin = spec.origin, ask(spec.origin)
    try:
        return _imp.create_dynamic(spec)
    finally:
        spec.origin = original

external.ExtensionFileLoader.create_module = create_module
sys.path.insert(0, {site!r})
import numpy
squares = numpy.arange(1000) @ numpy.arange(1000)
posix.write(1, b"slot {slot}: %d\\n" % squares)
"""

STATUS: dict[int, int] = {}


def run(slot: int) -> None:
    asked, ask = os.pipe()
    answer, answering = os.pipe()

    def provide() -> None:
        with open(asked) as questions:
            for path in questions:
                os.write(answering, provision.private_copy(path.strip(), slot)[-1].encode())

    threading.Thread(target=provide, daemon=True).start()
    python = ctypes.CDLL(provision.libpython_copy(slot))
    python.ip_Py_SetPythonHome.argtypes = [ctypes.c_wchar_p]
    python.ip_Py_SetPythonHome(sys.base_prefix)
    # site may import extensions, which must not happen before the loader is replaced.
    ctypes.c_int.in_dll(python, "ip_Py_NoSiteFlag").value = 1
    python.ip_Py_InitializeEx(0)
    site = str(distribution("numpy").locate_file(""))
    code = INSIDE.format(ask=ask, answer=answer, slot=slot, site=site)
    STATUS[slot] = python.ip_PyRun_SimpleString(code.encode())


if __name__ == "__main__":
    # libpython's copies need the interposer, by its SONAME, and that needs libtorch before it.
    for library in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(provision.torch_libraries() / library))
    ctypes.CDLL(str(provision.interposer_path()))
    threads = [threading.Thread(target=run, args=(slot,)) for slot in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0 if STATUS == {0: 0, 1: 0} else 1)
