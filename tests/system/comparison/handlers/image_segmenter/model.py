from collections import OrderedDict

from torch import nn


class Segments(nn.Module):
    """Answers as torchvision's segmentation models do."""

    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(3, 5, 3, padding=1)

    def forward(self, images):
        return OrderedDict(out=self.head(images))
