import torch
from torch import nn


class Detector(nn.Module):
    """Answers as torchvision's detectors do: boxes, labels and scores of each image."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(3, 4)

    def forward(self, images):
        found = []
        for image in images:
            height, width = image.shape[1:]
            corners = torch.tensor([[0, 0, width / 2, height / 2], [width / 2, 0, width, height]])
            scores = self.score(image.mean(dim=(1, 2))).sigmoid()
            boxes = torch.cat([corners, corners.flip(0)])
            found.append({"boxes": boxes, "labels": torch.arange(4), "scores": scores})
        return found
