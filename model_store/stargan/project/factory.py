"""Builds the editor of faces; nothing here goes into the archive."""

from __future__ import annotations

import torch

from project.attributes import ATTRIBUTES
from project.model import Editor
from project.network import Generator


def build() -> Editor:
    """StarGAN's generator, an eighth as wide as the paper's, with seeded random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(29)
        return Editor(Generator(len(ATTRIBUTES), channels=8, repeats=6)).eval()


def example_inputs() -> tuple[torch.Tensor, list[dict[str, bool]]]:
    """Two faces, with what is to become of each."""
    return torch.rand(2, 3, 64, 64), [{"black hair": True, "young": False}, {"male": True}]
