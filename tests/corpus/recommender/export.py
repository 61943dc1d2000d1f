import torch
from ranker.model import Ranker


def build():
    torch.manual_seed(6)
    return Ranker().eval()


def example_inputs():
    return {
        "dense": torch.tensor([[0.1, 0.2, 0.3, 0.4]]),
        "users": torch.tensor([[1, 7]]),
        "items": torch.tensor([[3, 5, 8]]),
    }
