"""The region operators in plain Python: what ops/region_ops.cpp has to compute."""

from __future__ import annotations

import torch

Box = tuple[float, float, float, float]


def suppress(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Which boxes, best first, overlap no better one by more than ``threshold``.

    Args:
        boxes: (boxes, 4) floats: left, top, right, bottom.
        scores: (boxes,) floats.
        threshold: shared area over covered area.
    """
    kept: list[int] = []
    rows = [(row[0], row[1], row[2], row[3]) for row in boxes.tolist()]
    for candidate in scores.argsort(descending=True, stable=True).tolist():
        if all(_overlap(rows[candidate], rows[better]) <= threshold for better in kept):
            kept.append(candidate)
    return torch.tensor(kept, dtype=torch.int64)


def align(features: torch.Tensor, boxes: torch.Tensor, scale: float, side: int) -> torch.Tensor:
    """RoIAlign: each box's features, at two by two points in each of its cells.

    Args:
        features: (channels, height, width) floats.
        boxes: (boxes, 4) floats: left, top, right, bottom, in pixels of the image.
        scale: pixels of the features for one of the image.
        side: cells along each side.

    Returns:
        (boxes, channels, side, side) floats.
    """
    if not len(boxes):
        return features.new_empty(0, len(features), side, side)
    places = (torch.arange(2 * side) + 0.5) / (2 * side)
    made = []
    for left, top, right, bottom in (boxes * scale).tolist():
        ys, xs = top - 0.5 + places * (bottom - top), left - 0.5 + places * (right - left)
        rows = torch.stack([torch.stack([_bilinear(features, float(y), float(x)) for x in xs]) for y in ys])
        cells = rows.unflatten(1, (side, 2)).unflatten(0, (side, 2)).mean(dim=(1, 3))
        made.append(cells.permute(2, 0, 1))
    return torch.stack(made)


def _overlap(a: Box, b: Box) -> float:
    left, top, right, bottom = max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])
    shared = _area((left, top, right, bottom))
    covered = _area(a) + _area(b) - shared
    return shared / covered if covered > 0 else 0.0


def _area(box: Box) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def _bilinear(features: torch.Tensor, y: float, x: float) -> torch.Tensor:
    _, height, width = features.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(len(features))
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    down, along = y - top, x - left
    above = features[:, top, left] * (1 - along) + features[:, top, right] * along
    below = features[:, bottom, left] * (1 - along) + features[:, bottom, right] * along
    return above * (1 - down) + below * down
