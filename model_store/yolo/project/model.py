"""From images of any size to named boxes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from project.darknet import Darknet
from project.names import NAMES


class Detector(nn.Module):
    """Images in; boxes, names and scores out.

    Args:
        network: predicts boxes.
        confidence: what is less sure is left out.
        overlap: what overlaps a better box of the same name by more is left out.
        side: of the images as the network sees them; that of its description if not given.
    """

    def __init__(self, network: Darknet, confidence: float, overlap: float, side: int | None = None) -> None:
        super().__init__()
        self.network = network
        self.confidence = confidence
        self.overlap = overlap
        self.side = side or network.side

    def forward(self, images: list[torch.Tensor]) -> list[dict[str, object]]:
        """Detect.

        Args:
            images: (3, height, width) floats from 0 to 1 each, of any sizes.

        Returns:
            For each image ``boxes``, (boxes, 4) floats: left, top, right, bottom in pixels;
            ``names``, a list; ``scores``, (boxes,) floats, the best first.
        """
        predicted = self.network(torch.stack([letterboxed(image, self.side) for image in images]))
        return [self._found(*each) for each in zip(images, predicted, strict=True)]

    def _found(self, image: torch.Tensor, rows: torch.Tensor) -> dict[str, object]:
        rows = rows[rows[:, 4] >= self.confidence]
        best = rows[:, 5:].max(dim=1)
        scores, order = (rows[:, 4] * best.values).sort(descending=True, stable=True)
        rows, labels = rows[order], best.indices[order]
        corners = torch.cat([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], dim=1)
        kept = suppressed(corners, labels, self.overlap)
        height, width = image.shape[1:]
        scale = self.side / max(height, width)
        edges = torch.tensor([(self.side - length * scale) // 2 for length in (width, height)] * 2)
        return {
            "boxes": (corners[kept] - edges) / scale,
            "names": [NAMES[label] for label in labels[kept].tolist()],
            "scores": scores[kept],
        }


def letterboxed(image: torch.Tensor, side: int) -> torch.Tensor:
    """The image in the middle of a grey square, (3, side, side), its longer side filling it."""
    scale = side / max(image.shape[1:])
    height, width = (max(1, round(length * scale)) for length in image.shape[1:])
    small = functional.interpolate(image[None], (height, width), mode="bilinear")[0]
    top, left = (side - height) // 2, (side - width) // 2
    return functional.pad(small, (left, side - width - left, top, side - height - top), value=0.5)


def suppressed(boxes: torch.Tensor, labels: torch.Tensor, overlap: float) -> list[int]:
    """Which boxes, best first, overlap no better one of the same label by more than that."""
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    shared = (high - low).clamp_min(0).prod(dim=2)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(dim=1)
    over = shared / (areas[:, None] + areas[None] - shared)
    rivals = ((over > overlap) & (labels[:, None] == labels[None])).tolist()
    kept: list[int] = []
    for candidate in range(len(rivals)):
        if not any(rivals[candidate][better] for better in kept):
            kept.append(candidate)
    return kept
