from torch import nn


class Backbone(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(3, width), nn.SiLU())
