"""Runs a program under the default rules of Docker for the system calls that matter here.

``python container_rules.py PROGRAM ARGUMENTS``: unshare() is forbidden, and so is clone() for namespaces;
clone3() seems not to exist. The filter stays with all processes that the program starts.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from errno import ENOSYS, EPERM

_NEW_NAMESPACES = 0x7E020000
_UNSHARE, _CLONE3, _CLONE = 272, 435, 56  # x86-64
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _IF_EQUAL, _IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_NUMBER, _FIRST_ARGUMENT = 0, 16  # offsets in struct seccomp_data

_PROGRAM = (
    (_LOAD, 0, 0, _NUMBER),
    (_IF_EQUAL, 0, 1, _UNSHARE),
    (_RETURN, 0, 0, _FAIL | EPERM),
    (_IF_EQUAL, 0, 1, _CLONE3),
    (_RETURN, 0, 0, _FAIL | ENOSYS),
    (_IF_EQUAL, 0, 3, _CLONE),
    (_LOAD, 0, 0, _FIRST_ARGUMENT),
    (_IF_SET, 0, 1, _NEW_NAMESPACES),
    (_RETURN, 0, 0, _FAIL | EPERM),
    (_RETURN, 0, 0, _ALLOW),
)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def obey() -> None:
    """Have this process obey them from now on, and its children."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in _PROGRAM))
    program = _FilterProgram(len(_PROGRAM), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (
        (_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0),
        (_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), "the filter cannot be set")
    if libc.unshare(0) == 0:
        raise RuntimeError("unshare is still allowed")


if __name__ == "__main__":
    obey()
    os.execvp(sys.argv[1], sys.argv[1:])
