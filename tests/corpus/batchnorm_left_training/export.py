import torch
from net.classifier import trained


def build():
    return trained()  # nobody called eval()


def example_inputs():
    return torch.linspace(0, 1, 36).reshape(1, 1, 6, 6)
