import torch


class PickledNet(torch.nn.Module):
    class Inner(torch.nn.Module):
        def forward(self, x):
            return x.relu()

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.inner = PickledNet.Inner()

    def forward(self, x):
        return self.inner(self.linear(x))
