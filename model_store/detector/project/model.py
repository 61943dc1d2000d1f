"""A small Faster R-CNN with RoIAlign.

Ren et al., "Faster R-CNN: Towards Real-Time Object Detection with Region Proposal
Networks", 2015 (arXiv:1506.01497); He et al., "Mask R-CNN", 2017 (arXiv:1703.06870).
"""

from __future__ import annotations

import torch
from torch import nn

from project.backbone import Backbone
from project.boxes import anchors, moved
from project.operators import align, suppress

SIZES = (32.0, 64.0, 128.0)
RATIOS = (0.5, 1.0, 2.0)


class Detector(nn.Module):
    """Images in; boxes, labels and scores out.

    Args:
        classes: how many, without the background.
        channels: of the features.
        proposals: regions looked at in each image.
        found: boxes answered for each image at most.
    """

    def __init__(self, classes: int, channels: int = 256, proposals: int = 300, found: int = 100) -> None:
        super().__init__()
        self.proposals = proposals
        self.found = found
        self.backbone = Backbone(channels)
        self.proposer = Proposer(channels, len(SIZES) * len(RATIOS))
        self.head = Head(channels, classes)
        for layer in self.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        for layer in (self.proposer.deltas, self.head.deltas):
            nn.init.normal_(layer.weight, std=0.01)

    def forward(self, images: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        """Detect.

        Args:
            images: (3, height, width) floats each, of any sizes.

        Returns:
            For each image ``boxes``, (boxes, 4) floats: left, top, right, bottom in pixels;
            ``labels``, (boxes,) int64; ``scores``, (boxes,) floats, the best first.
        """
        return [self._detect(image) for image in images]

    def _detect(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        _, height, width = image.shape
        features = self.backbone(image[None])
        scores, deltas = self.proposer(features)
        places = anchors(*features.shape[2:], Backbone.stride, SIZES, RATIOS)
        best = scores.topk(min(4 * self.proposals, len(scores)))
        regions = moved(places[best.indices], deltas[best.indices], height, width)
        regions = regions[suppress(regions, best.values, 0.7)[: self.proposals]]
        chances, moves = self.head(align(features[0], regions, 1 / Backbone.stride, Head.side))
        surest = chances[:, 1:].max(dim=1)
        boxes = moved(regions, moves, height, width)
        # Boxes of different classes do not suppress each other: they are put far apart.
        apart = boxes + (surest.indices * (height + width))[:, None]
        kept = suppress(apart, surest.values, 0.5)[: self.found]
        return {"boxes": boxes[kept], "labels": surest.indices[kept], "scores": surest.values[kept]}


class Proposer(nn.Module):
    """Says where there may be something: the region proposal network."""

    def __init__(self, channels: int, shapes: int) -> None:
        super().__init__()
        self.shared = nn.Conv2d(channels, channels, 3, padding=1)
        self.scores = nn.Conv2d(channels, shapes, 1)
        self.deltas = nn.Conv2d(channels, 4 * shapes, 1)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of (1, channels, height, width): (anchors,) scores, (anchors, 4) deltas."""
        x = torch.relu(self.shared(features))
        scores = self.scores(x)[0].permute(1, 2, 0).flatten()
        return scores, self.deltas(x)[0].permute(1, 2, 0).reshape(-1, 4)


class Head(nn.Module):
    """Says what is in a region, and where exactly."""

    side = 7

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.shared = nn.Sequential(
            nn.Flatten(), nn.Linear(channels * self.side**2, channels), nn.ReLU(),
            nn.Linear(channels, channels), nn.ReLU(),
        )  # fmt: skip
        self.classes = nn.Linear(channels, classes + 1)
        self.deltas = nn.Linear(channels, 4)

    def forward(self, regions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of (regions, channels, side, side): (regions, 1 + classes) chances, (regions, 4) deltas."""
        x = self.shared(regions)
        return torch.softmax(self.classes(x), dim=1), self.deltas(x)
