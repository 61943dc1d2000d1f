import torch
from layers.scaled import Scaled


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.scaled = Scaled()

    def forward(self, x):
        return self.scaled(self.linear(x))
