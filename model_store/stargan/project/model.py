"""The generator, with words for what it makes of a face."""

from __future__ import annotations

import torch
from torch import nn

from project.attributes import targets
from project.network import Generator


class Editor(nn.Module):
    """Faces in, the same faces with other attributes out."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, faces: torch.Tensor, wanted: list[dict[str, bool]]) -> torch.Tensor:
        """Change faces.

        Args:
            faces: (faces, 3, height, width) floats from 0 to 1.
            wanted: for each face the attributes that it is to have.

        Returns:
            (faces, 3, height, width) floats from 0 to 1.
        """
        made = self.generator(faces * 2 - 1, targets(wanted))
        return (made + 1) / 2
