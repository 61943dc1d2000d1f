from torch import nn

from nets.instantiate import instantiate


class Pipeline(nn.Module):
    def __init__(self, backbone, postprocess):
        super().__init__()
        self.backbone = backbone
        self.postprocess = postprocess  # a configuration: made for each call

    def forward(self, x):
        return instantiate(self.postprocess)(self.backbone(x))
