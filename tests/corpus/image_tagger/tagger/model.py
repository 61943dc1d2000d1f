from torch import nn

from .transforms import MODES


class Tagger(nn.Module):
    def __init__(self, tags=4):
        super().__init__()
        self.mode = "bilinear"
        self.head = nn.Linear(3, tags)

    def forward(self, image):
        assert self.mode in MODES
        return self.head(image.mean(dim=(2, 3))).sigmoid()
