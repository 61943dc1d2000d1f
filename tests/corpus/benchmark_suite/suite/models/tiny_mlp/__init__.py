import torch
from suite.base import BenchmarkModel

from .layers import TwoLayers


class Model(BenchmarkModel):
    def __init__(self):
        torch.manual_seed(0)
        self.module = TwoLayers(6, 3).eval()
