"""MoCo: is this a view of that image, or of one of many others?

He et al., "Momentum Contrast for Unsupervised Visual Representation Learning", 2019
(arXiv:1911.05722), algorithm 1.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


class MoCo(nn.Module):
    """Two views of each image in, and how alike they are, beside earlier images' views, out.

    It changes as it answers: its queue holds the keys that were seen last.

    Args:
        make_encoder: called with ``features`` and ``width``.
        features: numbers for an image, 128 in the paper.
        width: of the encoder's first layer.
        queue: how many keys are kept, 65536 in the paper.
        momentum: how slowly the keys' encoder follows the queries' one while training.
        temperature: of the logits.
    """

    def __init__(
        self,
        make_encoder: Callable[[int, int], nn.Module],
        width: int = 64,
        features: int = 128,
        queue: int = 65536,
        momentum: float = 0.999,
        temperature: float = 0.07,
    ) -> None:
        super().__init__()
        self.momentum = momentum
        self.temperature = temperature
        self.queries = make_encoder(features, width)
        self.keys = copy.deepcopy(self.queries).requires_grad_(False)
        self.register_buffer("queue", functional.normalize(torch.randn(features, queue), dim=0))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))

    def forward(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Compare.

        Args:
            queries: (images, 3, height, width) floats.
            keys: other views of the same images.

        Returns:
            (images, 1 + queue) logits: that of the image's own key, then those of the keys in the queue.
        """
        found = functional.normalize(self.queries(queries), dim=1)
        with torch.no_grad():
            if self.training:
                self._follow()
            looked_for = functional.normalize(self.keys(keys), dim=1)
        own = (found * looked_for).sum(dim=1, keepdim=True)
        others = found @ self.queue.clone()  # which is about to change
        self._enqueue(looked_for)
        return torch.cat([own, others], dim=1) / self.temperature

    def _follow(self) -> None:
        """The keys' encoder moves a little towards the queries' one."""
        for key, query in zip(self.keys.parameters(), self.queries.parameters(), strict=True):
            key.lerp_(query.detach(), 1 - self.momentum)

    @torch.no_grad()
    def _enqueue(self, keys: torch.Tensor) -> None:
        """The oldest keys give way to these."""
        size = self.queue.shape[1]
        self.queue[:, (self.place + torch.arange(len(keys))) % size] = keys.t()
        self.place.add_(len(keys)).remainder_(size)
