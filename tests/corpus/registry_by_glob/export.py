import torch
import zoo
from torch import nn


class Ensemble(nn.Module):
    """All that the zoo knows of, by name, when it is first asked."""

    def __init__(self):
        super().__init__()
        self.models = nn.ModuleDict({name: made() for name, made in sorted(zoo.MODELS.items())})

    def forward(self, x):
        assert set(self.models) == set(zoo.MODELS), "the registry is as full as it was"
        return torch.cat([self.models[name](x) for name in self.models], dim=1)


def build():
    torch.manual_seed(8)
    return Ensemble().eval()


def example_inputs():
    return torch.linspace(0, 1, 4).reshape(1, 4)
