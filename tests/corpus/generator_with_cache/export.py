import torch
from decoder.model import Decoder


def build():
    torch.manual_seed(7)
    return Decoder().eval()


def example_inputs():
    return torch.tensor([[1, 2, 3, 4]])
