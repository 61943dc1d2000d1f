"""Images as optical flow moves them."""

from __future__ import annotations

import torch
from torch.nn import functional


def backwarp(image: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
    """Each pixel is taken from where the flow points, between four pixels if need be.

    Args:
        image: (images, channels, height, width) floats.
        flow: (images, 2, height, width) floats: pixels to the right, pixels down.

    Returns:
        (images, channels, height, width) floats.
    """
    _, _, height, width = image.shape
    ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    # grid_sample counts from -1, the middle of the first pixel, to 1, that of the last.
    columns = 2 * (xs + flow[:, 0]) / (width - 1) - 1
    rows = 2 * (ys + flow[:, 1]) / (height - 1) - 1
    places = torch.stack([columns, rows], dim=-1)
    return functional.grid_sample(image, places, padding_mode="border", align_corners=True)
