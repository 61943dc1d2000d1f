import torch
from suite.base import BenchmarkModel


class Model(BenchmarkModel):
    def __init__(self):
        self.module = torch.nn.Conv1d(1, 2, 3).eval()
