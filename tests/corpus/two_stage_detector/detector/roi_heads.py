from collections import OrderedDict

import torch
from torch import nn


class RoIHeads(nn.Module):
    def __init__(self, channels, classes, threshold=0.3):
        super().__init__()
        self.threshold = threshold
        self.classify = nn.Linear(channels, classes)

    def forward(self, features, proposals):
        results = []
        for image, boxes in zip(features, proposals, strict=True):
            corners = boxes.round().long().clamp(0, image.shape[1] - 1)
            pooled = [
                image[:, top : bottom + 1, left : right + 1].mean(dim=(1, 2))
                for left, top, right, bottom in corners.tolist()
            ]
            scores, labels = self.classify(torch.stack(pooled)).softmax(dim=1).max(dim=1)
            sure = scores > self.threshold
            results.append(OrderedDict(boxes=boxes[sure], scores=scores[sure], labels=labels[sure]))
        return results
