"""CycleGAN: two generators, each the other's way back.

Zhu et al., "Unpaired Image-to-Image Translation using Cycle-Consistent Adversarial Networks",
2017 (arXiv:1703.10593).
"""

from __future__ import annotations

import torch
from torch import nn

from project.network import ResnetGenerator
from project.options import Options


class CycleGAN(nn.Module):
    """Images in; how they would look as the other kind, and the way back from there, out."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.generators = nn.ModuleDict(
            {
                direction: ResnetGenerator(options.channels, options.blocks, options.norm)
                for direction in options.directions
            }
        )

    def forward(self, images: torch.Tensor, direction: str) -> dict[str, torch.Tensor]:
        """Translate.

        Args:
            images: (images, 3, height, width) floats from -1 to 1, sides of multiples of 4.
            direction: one of the options'.

        Returns:
            ``fake`` and ``reconstructed``, each like ``images``.
        """
        if direction not in self.generators:
            raise ValueError(f"no direction {direction!r}; there are {', '.join(self.generators)}")
        (back,) = set(self.generators) - {direction}
        fake = self.generators[direction](images)
        return {"fake": fake, "reconstructed": self.generators[back](fake)}
