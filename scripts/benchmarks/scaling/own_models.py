"""The models of ``scripts/bench scaling`` that are no recipes, and their loop: the same in every Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from benchmarks.memory import guest
from benchmarks.rest.handlers import WIDTH, Gated
from benchmarks.shared import tiny
from benchmarks.shared.at_once import rate_of

WARM = 20
LAYERS, WIDE, BATCH = 16, 256, 16
TABLES = 9
ROWS, DENSE, EMBEDDED = 1000, 13, 16


class Ranking(torch.nn.Module):
    """A small DLRM that is called with ten tensors: dense features, and each table's categories."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = torch.nn.Sequential(torch.nn.Linear(DENSE, EMBEDDED), torch.nn.ReLU())
        self.tables = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(ROWS, EMBEDDED, mode="sum") for _ in range(TABLES)
        )
        self.top = torch.nn.Linear(EMBEDDED + (TABLES + 1) ** 2, 1)

    def forward(self, dense: torch.Tensor, *categories: torch.Tensor) -> torch.Tensor:
        """``[n, 13]`` floats and nine times ``[n, k]`` int64 ``-> [n]``, probabilities."""
        x = self.bottom(dense)
        bags = [table(each) for table, each in zip(self.tables, categories, strict=True)]
        vectors = torch.stack([x, *bags], dim=1)
        crossed = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat([x, crossed], 1))).squeeze(1)


class Encoder(torch.nn.Module):
    """A small BERT of transformers': ``[1, n]`` tokens, int64, ``-> [1, 64]``, float32."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = guest.build()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The pooled output."""
        return self.bert(tokens).pooler_output  # type: ignore[no-any-return]


def _tower() -> torch.nn.Module:
    """Layers with more arithmetic than interpreter: ``[n, 256] -> [n, 256]``, float32."""
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDE, WIDE), torch.nn.GELU()) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers)


class Model(NamedTuple):
    """How to make a model, and what to call it with."""

    build: Callable[[], torch.nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]


MODELS = {
    "tiny": Model(tiny.TinyMLP, lambda: (torch.ones(1, tiny.WIDTH),)),
    "tower": Model(_tower, lambda: (torch.ones(BATCH, WIDE),)),
    "gated": Model(lambda: torch.nn.Sequential(Gated(), Gated()), lambda: (torch.ones(1, WIDTH),)),
    "dlrm": Model(Ranking, lambda: (torch.ones(3, DENSE), *torch.arange(6 * TABLES).view(TABLES, 3, 2))),
    "bert": Model(Encoder, lambda: (torch.arange(16)[None],)),
}


@functools.cache
def built(name: str) -> torch.nn.Module:
    """This interpreter's one, with weights from a fixed seed."""
    torch.manual_seed(0)
    return MODELS[name].build().eval()


# To pack.
tower, gated, dlrm, bert = (functools.partial(built, name) for name in ("tower", "gated", "dlrm", "bert"))


def repeat(model: Callable[..., Any], name: str, seconds: float) -> float:
    """Calls a second of what is such a model, in the caller's inference mode."""
    inputs = MODELS[name].inputs()
    with torch.inference_mode():
        for _ in range(WARM):
            model(*inputs)
        return rate_of(lambda: model(*inputs), seconds)


def repeat_own(name: str, seconds: float) -> float:
    """The same of this interpreter's model: what runs inside interpreters."""
    return repeat(built(name), name, seconds)
