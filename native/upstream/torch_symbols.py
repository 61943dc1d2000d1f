"""Checks whether this torch has the private symbols that the C++ code uses.

They are in one table, native/cpp/upstream/torch_symbols.h, which is compiled into the interposer.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_Report = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


def check(interposer: Path) -> tuple[int, list[str]]:
    """Return the number of symbols, and the missing or changed ones. Imports torch.

    Args:
        interposer: interpool's library that looks them up.

    Raises:
        ImportError: torch cannot be imported.
        OSError: the interposer cannot be loaded with this torch.
    """
    # ctypes._dlopen is private, too, and may be missing.
    from _ctypes import dlopen

    import torch  # noqa: F401

    problems: list[str] = []
    handle = dlopen(str(interposer), os.RTLD_NOW)
    look_up = ctypes.CDLL(str(interposer), handle=handle).interpool_torch_symbol_problems
    look_up.argtypes = [_Report]
    look_up.restype = ctypes.c_size_t
    count = look_up(_Report(lambda problem: problems.append(problem.decode())))
    return count, problems
