"""What describes a face: the paper's attributes of CelebA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

HAIR = ("black hair", "blond hair", "brown hair")
ATTRIBUTES = (*HAIR, "male", "young")


def targets(wanted: Sequence[Mapping[str, bool]]) -> torch.Tensor:
    """Which attributes each face is to have, (faces, attributes) of 0 and 1.

    What is not said is taken to be false; of the colours of hair, one at most may be true.
    """
    for each in wanted:
        unknown = each.keys() - set(ATTRIBUTES)
        if unknown:
            raise ValueError(f"no attributes: {sorted(unknown)}; there are {', '.join(ATTRIBUTES)}")
        if sum(each.get(colour, False) for colour in HAIR) > 1:
            raise ValueError(f"more than one colour of hair: {dict(each)}")
    return torch.tensor([[float(each.get(name, False)) for name in ATTRIBUTES] for each in wanted])
