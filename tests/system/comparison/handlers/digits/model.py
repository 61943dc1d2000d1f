import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, 2)
        self.dropout = nn.Dropout2d(0.25)
        self.fc = nn.Linear(676, 10)

    def forward(self, x):
        x = self.dropout(torch.relu(self.conv(x)))
        return torch.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)
