import torch
from torch import nn

from .boxes import nms


class RegionProposals(nn.Module):
    def __init__(self, channels, kept=4):
        super().__init__()
        self.kept = kept
        self.objectness = nn.Conv2d(channels, 1, 1)
        self.deltas = nn.Conv2d(channels, 4, 1)

    def forward(self, features):
        _, _, height, width = features.shape
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        anchors = torch.stack([x, y, x + 3, y + 3], dim=-1).reshape(-1, 4).float()
        found = []
        for scores, deltas in zip(self.objectness(features), self.deltas(features), strict=True):
            boxes = anchors + deltas.permute(1, 2, 0).reshape(-1, 4).tanh()
            found.append(boxes[nms(boxes, scores.flatten(), 0.5)[: self.kept]])
        return found
