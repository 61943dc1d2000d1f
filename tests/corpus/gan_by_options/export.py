import torch
from models import create_model
from options.base_options import TestOptions


def build():
    torch.manual_seed(3)
    return create_model(TestOptions().parse()).eval()


def example_inputs():
    return torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8)
