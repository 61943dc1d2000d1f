import torch
from fewshot.maml import MAML


def build():
    torch.manual_seed(5)
    return MAML()


def example_inputs():
    return {
        "support": torch.tensor([[0.0, 0.0], [0.1, 0.0], [1.0, 1.0], [0.9, 1.0]]),
        "labels": torch.tensor([0, 0, 1, 1]),
        "query": torch.tensor([[0.05, 0.0], [1.0, 0.95]]),
    }
