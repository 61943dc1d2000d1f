import torch
from torch import nn


class DLRM(nn.Module):
    """A deep learning recommendation model: dense features, and bags of ids."""

    def __init__(self, sizes=(10, 20, 30), width=8):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(size, width, mode="sum") for size in sizes)
        self.bottom = nn.Sequential(nn.Linear(13, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + 6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, dense, ids, offsets):
        dense = self.bottom(dense)
        parts = [dense, *(bag(i, o) for bag, i, o in zip(self.bags, ids, offsets, strict=True))]
        stacked = torch.stack(parts, dim=1)
        rows, columns = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([dense, (stacked @ stacked.transpose(1, 2))[:, rows, columns]], dim=1))
