"""From photographs to a person before another background."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from project.network import ContextSwitching


class Matting(nn.Module):
    """Cuts a person out, and puts them before another background."""

    def __init__(self, network: ContextSwitching) -> None:
        super().__init__()
        self.network = network

    def forward(
        self,
        image: torch.Tensor,
        background: torch.Tensor,
        guess: torch.Tensor,
        instead: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """Cut out.

        Args:
            image: (images, 3, height, width) floats from 0 to 1: a person before a background.
            background: the same without them.
            guess: (images, 1, height, width): about where they are.
            instead: another background.

        Returns:
            ``alpha``, (images, 1, height, width) floats from 0 to 1: how opaque; ``foreground``,
            (images, 3, height, width); and ``composed``, likewise, if there is another background.
        """
        height, width = image.shape[2:]
        margins = (0, -width % 4, 0, -height % 4)

        def padded(x: torch.Tensor) -> torch.Tensor:
            return functional.pad(x, margins, mode="replicate")

        priors = {"background": padded(background * 2 - 1), "guess": padded(softened(guess))}
        alpha, foreground = self.network(padded(image * 2 - 1), priors)
        alpha = alpha[..., :height, :width]
        foreground = (foreground[..., :height, :width] + 1) / 2
        # Where nothing shines through, the photograph itself is the best foreground.
        foreground = torch.where(alpha > 0.95, image, foreground)
        answer = {"alpha": alpha, "foreground": foreground}
        if instead is not None:
            answer["composed"] = alpha * foreground + (1 - alpha) * instead
        return answer


def softened(guess: torch.Tensor, by: int = 5) -> torch.Tensor:
    """A mask worn away at its edges, and then blurred, so that it is no more than a guess."""
    worn = -functional.max_pool2d(-guess, by, stride=1, padding=by // 2)
    return functional.avg_pool2d(worn, by, stride=1, padding=by // 2, count_include_pad=False)
