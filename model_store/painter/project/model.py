"""Learning to Paint: an actor chooses strokes, a renderer paints them, again and again.

Huang et al., "Learning to Paint With Model-based Deep Reinforcement Learning", 2019
(arXiv:1903.04411).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from project.actor import Actor
from project.renderer import Renderer
from project.strokes import BUNDLE, SHAPE, STROKE


class Painter(nn.Module):
    """Pictures in; paintings of them, and the strokes that made them, out."""

    def __init__(self, actor: Actor, renderer: Renderer) -> None:
        super().__init__()
        self.actor = actor
        self.renderer = renderer

    def forward(self, pictures: torch.Tensor, steps: int) -> dict[str, torch.Tensor]:
        """Paint.

        Args:
            pictures: (pictures, 3, height, width) floats from 0 to 1.
            steps: how often strokes are chosen.

        Returns:
            ``paintings``: (pictures, 3, height, width) floats from 0 to 1; ``strokes``:
            (pictures, steps x BUNDLE, STROKE) floats; ``errors``: (pictures, steps) floats,
            the mean square that is left after each step.
        """
        side = self.renderer.side
        small = functional.interpolate(pictures, (side, side), mode="bilinear")
        canvas = torch.zeros_like(small)
        strokes, errors = [], []
        for step in range(steps):
            bundle = self.actor(canvas, small, step / steps).unflatten(1, (BUNDLE, STROKE))
            canvas = self.paint(canvas, bundle)
            strokes.append(bundle)
            errors.append((canvas - small).square().mean(dim=(1, 2, 3)))
        return {
            "paintings": functional.interpolate(canvas, pictures.shape[2:], mode="bilinear"),
            "strokes": torch.cat(strokes, dim=1),
            "errors": torch.stack(errors, dim=1),
        }

    def paint(self, canvas: torch.Tensor, bundle: torch.Tensor) -> torch.Tensor:
        """The canvases, (pictures, 3, side, side), with a bundle of strokes each on them."""
        cover = self.renderer(bundle[..., :SHAPE].flatten(0, 1)).unflatten(0, bundle.shape[:2])
        for number in range(BUNDLE):
            opaque = cover[:, number, None]
            colour = bundle[:, number, SHAPE:, None, None]
            canvas = canvas * (1 - opaque) + colour * opaque
        return canvas
