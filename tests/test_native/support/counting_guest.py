"""Runs in an interpreter: tensors over numpy arrays, whose release needs the GIL of where they came from."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

import numpy as np
import torch

_lock = threading.Lock()
_made = 0
_freed = 0
_kept: dict[Any, torch.Tensor] = {}
_names = itertools.count()


def _gone() -> None:
    global _freed
    with _lock:
        _freed += 1


def make(size: int) -> torch.Tensor:
    global _made
    array = np.full(size, 7.0, dtype=np.float32)
    with _lock:
        _made += 1
    weakref.finalize(array, _gone).atexit = False
    return torch.from_numpy(array)


def keep(name: Any, tensor: torch.Tensor) -> None:
    _kept[name] = tensor


def total(name: Any) -> float:
    return _kept[name].sum().item()


def total_dequantized(name: Any) -> float:
    return _kept[name].dequantize().sum().item()


def drop(name: Any) -> None:
    del _kept[name]


def drop_all() -> None:
    _kept.clear()


def counts() -> tuple[int, int]:
    """Arrays made and arrays freed."""
    return _made, _freed
