"""Tensors as clients send them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch


def saved(value: object, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
