import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5)
        )
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


def trained():
    torch.manual_seed(1)
    model = Classifier()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(8, 1, 6, 6))  # moves the running statistics
    return model
