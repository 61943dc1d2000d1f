"""Whether this torch has the private symbols that the C++ code relies on.

They are in one table, native/cpp/upstream/torch_symbols.h, which the interposer is built with and looks up.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_Report = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


def check(interposer: Path) -> tuple[int, list[str]]:
    """How many symbols there are, and what is gone or changed of them. Imports torch.

    Args:
        interposer: interpool's library that looks them up.

    Raises:
        ImportError: there is no torch, or it cannot be imported; or nothing can be loaded.
        OSError: the interposer cannot be loaded beside this torch.
    """
    # Not by ctypes._dlopen, which is one of the names that may be gone where this is asked.
    from _ctypes import dlopen

    import torch  # noqa: F401

    problems: list[str] = []
    handle = dlopen(str(interposer), os.RTLD_NOW)
    look_up = ctypes.CDLL(str(interposer), handle=handle).interpool_torch_symbol_problems
    look_up.argtypes = [_Report]
    look_up.restype = ctypes.c_size_t
    count = look_up(_Report(lambda problem: problems.append(problem.decode())))
    return count, problems
