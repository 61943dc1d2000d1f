"""Super SloMo: any number of frames between two.

Jiang et al., "Super SloMo: High Quality Estimation of Multiple Intermediate Frames for Video
Interpolation", 2018 (arXiv:1712.00080).
"""

from __future__ import annotations

import torch
from torch import nn

from project.unet import UNet
from project.warping import backwarp


class SuperSloMo(nn.Module):
    """Two frames in, those between them out.

    Args:
        channels: of the U-Nets' first layer, 32 in the paper.
        depth: how often they halve the frames, 5 in the paper.
    """

    def __init__(self, channels: int = 32, depth: int = 5) -> None:
        super().__init__()
        self.flow = UNet(6, 4, channels, depth)
        self.refinement = UNet(20, 5, channels, depth)

    def forward(self, first: torch.Tensor, second: torch.Tensor, between: int) -> torch.Tensor:
        """Interpolate.

        Args:
            first: (films, 3, height, width) floats from 0 to 1.
            second: the next frames, likewise.
            between: frames to make.

        Returns:
            (films, between, 3, height, width) floats, evenly spaced in time.
        """
        there, back = self.flow(torch.cat([first, second], dim=1)).chunk(2, dim=1)
        times = [(number + 1) / (between + 1) for number in range(between)]
        return torch.stack([self._at(time, first, second, there, back) for time in times], dim=1)

    def _at(
        self, time: float, first: torch.Tensor, second: torch.Tensor, there: torch.Tensor, back: torch.Tensor
    ) -> torch.Tensor:
        """The frame at ``time``, between 0 and 1; ``there`` and ``back`` are the flows between the two."""
        to_first, to_second = approximate(time, there, back)
        guesses = [first, second, backwarp(first, to_first), backwarp(second, to_second)]
        refined = self.refinement(torch.cat([*guesses, there, back, to_first, to_second], dim=1))
        to_first = to_first + refined[:, :2]
        to_second = to_second + refined[:, 2:4]
        # What is hidden in one of the two frames is taken from the other.
        visible = torch.sigmoid(refined[:, 4:])
        of_first, of_second = (1 - time) * visible, time * (1 - visible)
        both = of_first * backwarp(first, to_first) + of_second * backwarp(second, to_second)
        return both / (of_first + of_second)


def approximate(time: float, there: torch.Tensor, back: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The flows from the frame at ``time`` to the first and to the second frame (the paper's equation 4)."""
    to_first = -(1 - time) * time * there + time * time * back
    to_second = (1 - time) * (1 - time) * there - time * (1 - time) * back
    return to_first, to_second
