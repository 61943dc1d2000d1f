from importlib.metadata import entry_points

import torch


def build():
    (found,) = [point for point in entry_points(group="painter.filters") if point.name == "sobel"]
    return found.load()().eval()


def example_inputs():
    return torch.arange(25.0).reshape(1, 1, 5, 5)
