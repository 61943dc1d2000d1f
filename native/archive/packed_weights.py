"""Creates the C++ objects of quantized layers' packed weights from pickles.

torch creates an empty object of any registered class and fills it later. If an operator gets an empty object,
the process crashes. So a pickle first gets a placeholder; the object is created when its content is known and
its class is one of those listed here.
"""

from __future__ import annotations

from typing import Any, Final

import torch

NAME: Final = ("torch", "ScriptObject")
"""The class that a pickle names for such an object."""

_CLASSES: Final = "__torch__.torch.classes."
_CONVOLUTIONS: Final = ("quantized.Conv2dPackedParamsBase", "quantized.Conv3dPackedParamsBase")
# Their content is only tensors, which C++ checks; none of them runs code or opens files.
_TAKEN: Final = frozenset(
    {
        *_CONVOLUTIONS,
        "quantized.EmbeddingPackedParamsBase",
        "quantized.LinearPackedParamsBase",
        "rnn.CellParamsBase",
    }
)


class PackedWeights:
    """Placeholder until the pickle provides the object's content."""


def make(state: Any) -> torch.ScriptObject:
    """Create the object from its pickled state.

    Raises:
        ValueError: its class is not listed, or torch did not write the content.
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
    """Return whether all tensors are present; C++ would read beyond the end of shorter lists."""
    match content:
        case "2", [torch.Tensor(), torch.Tensor()], [None | torch.Tensor()]:
            return type(content) is tuple and all(type(part) is list for part in content[1:])
    return False
