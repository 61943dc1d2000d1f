from torch import nn

from .registry import register


@register("wide")
class Wide(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)
