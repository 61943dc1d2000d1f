import glob
import os

import torch

from . import VOCABULARY


class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(len(self.words()), 4)

    def words(self):
        words = []
        for path in sorted(glob.glob(os.path.join(VOCABULARY, "*.txt"))):
            with open(path) as file:
                words += file.read().split()
        return words

    def forward(self, numbers):
        return self.embedding(numbers % len(self.words())).mean(dim=1)
