"""Anchors, and boxes as they are given relative to others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

_MOST = math.log(1000 / 16)  # no box grows more than this at once


def anchors(
    height: int, width: int, stride: int, sizes: Sequence[float], ratios: Sequence[float]
) -> torch.Tensor:
    """Boxes of all sizes and ratios around each place's centre: (height x width x shapes, 4) floats."""
    shapes = [(size / math.sqrt(ratio), size * math.sqrt(ratio)) for size in sizes for ratio in ratios]
    halves = torch.tensor([(-w / 2, -h / 2, w / 2, h / 2) for w, h in shapes])
    ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    centres = (torch.stack([xs, ys, xs, ys], dim=-1).flatten(0, 1) + 0.5) * stride
    return (centres[:, None] + halves).flatten(0, 1)


def moved(boxes: torch.Tensor, deltas: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Boxes, (boxes, 4), moved and scaled by deltas, (boxes, 4), and cut off at the image's edges."""
    sizes = boxes[:, 2:] - boxes[:, :2]
    centres = boxes[:, :2] + sizes / 2 + deltas[:, :2] * sizes
    halves = sizes * deltas[:, 2:].clamp(max=_MOST).exp() / 2
    corners = torch.cat([centres - halves, centres + halves], dim=1)
    return corners.clamp_min(0).minimum(torch.tensor([width, height, width, height]))
