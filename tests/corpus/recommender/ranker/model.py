import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self, users=20, items=30, dense=4):
        super().__init__()
        self.users = nn.EmbeddingBag(users, 6, mode="sum")
        self.items = nn.EmbeddingBag(items, 6, mode="sum")
        self.bottom = nn.Sequential(nn.Linear(dense, 6), nn.ReLU())
        self.top = nn.Linear(6 + 3, 1)

    def forward(self, dense, users, items):
        bottom = self.bottom(dense)
        features = torch.stack([bottom, self.users(users), self.items(items)], dim=1)
        products = features @ features.transpose(1, 2)
        row, column = torch.tril_indices(3, 3, offset=-1)
        return self.top(torch.cat([bottom, products[:, row, column]], dim=1)).sigmoid()
