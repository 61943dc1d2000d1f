"""What a CycleGAN is made of, as one object, as programs for research keep it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Norm(Enum):
    """How layers are normalised."""

    INSTANCE = "instance"
    BATCH = "batch"
    NONE = "none"


@dataclass(frozen=True)
class Options:
    """Sizes of both generators, and the names of both directions.

    Attributes:
        channels: of the first layer, 64 in the paper.
        blocks: residual blocks, 6 in the paper for images of 128, 9 for larger ones.
        norm: of all layers.
        directions: a generator each.
    """

    channels: int = 64
    blocks: int = 9
    norm: Norm = Norm.INSTANCE
    directions: tuple[str, str] = field(default=("to horses", "to zebras"))
