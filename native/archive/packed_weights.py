"""Packed weights of quantized layers: the objects of C++ that a pickle may make, and of what.

Torch makes such an object empty and fills it afterwards; one that stays empty ends the process when an
operator is given it. It makes any class that is registered, too. So a pickle gets a stand-in,
and the object is made once its content is there and is of a class that is listed here.
"""

from __future__ import annotations

from typing import Any, Final

import torch

NAME: Final = ("torch", "ScriptObject")
"""The class by which a pickle makes one."""

_CLASSES: Final = "__torch__.torch.classes."
_CONVOLUTIONS: Final = ("quantized.Conv2dPackedParamsBase", "quantized.Conv3dPackedParamsBase")
# Made of tensors alone, which C++ checks; none of them runs code or opens files.
_TAKEN: Final = frozenset(
    {
        *_CONVOLUTIONS,
        "quantized.EmbeddingPackedParamsBase",
        "quantized.LinearPackedParamsBase",
        "rnn.CellParamsBase",
    }
)


class PackedWeights:
    """What a pickle has until it has said what is in the object."""


def make(state: Any) -> torch.ScriptObject:
    """The object of a state that a pickle gives.

    Raises:
        ValueError: it is of a class that is not listed, or its content is none that torch has written.
    """
    content, name = state if type(state) is tuple and len(state) == 2 else (None, None)
    if type(name) is not str or name.removeprefix(_CLASSES) not in _TAKEN:
        raise ValueError("an object of C++ of a class that a model may not be pickled with")
    if name.removeprefix(_CLASSES) in _CONVOLUTIONS and not _is_convolution(content):
        raise ValueError("a packed convolution that torch has not written")
    made: Any = torch.ScriptObject.__new__(torch.ScriptObject)
    try:
        made.__setstate__((content, name))
    except (RuntimeError, TypeError) as error:
        said = next(iter(str(error).splitlines()), "")
        raise ValueError(f"packed weights that torch does not take ({said})") from error
    filled: torch.ScriptObject = made
    return filled


def _is_convolution(content: Any) -> bool:
    """Whether it has all tensors; C++ reads beyond the end of lists that are shorter."""
    match content:
        case "2", [torch.Tensor(), torch.Tensor()], [None | torch.Tensor()]:
            return type(content) is tuple and all(type(part) is list for part in content[1:])
    return False
