"""Models whose answers to several requests at once are easily mixed up, as users write them.

All are functions of their inputs. ``rows``, ``images`` and the like are example inputs.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


class Of(nn.Module):
    """A module of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def _seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make().eval()


# ---- example inputs ------------------------------------------------------------------------------


def rows() -> torch.Tensor:
    return torch.tensor([[0.5, -1.0, 2.0, 0.25], [1.5, 3.0, -2.0, 0.75], [-0.5, 0.0, 1.0, 4.0]])


def images() -> torch.Tensor:
    return torch.arange(2 * 3 * 6 * 6).reshape(2, 3, 6, 6) / 100 - 1


def sequences() -> torch.Tensor:
    return torch.arange(2 * 5 * 8).reshape(2, 5, 8).sin()


def frames() -> torch.Tensor:
    return torch.arange(2 * 8).reshape(2, 8).cos()


def pairs() -> torch.Tensor:
    return torch.arange(4 * 3).reshape(4, 3) / 4


def with_options() -> dict[str, Any]:
    return {"x": rows(), "options": {"scale": 2.0}}


def shown_inputs() -> dict[str, Any]:
    return {"how": "type", "value": 1}


# ---- a row is a request's ------------------------------------------------------------------------


def _double(x: Any) -> Any:
    return x * 2


def _fields(x: torch.Tensor) -> Any:
    return x, {"sum": x.sum(-1), "none": None, "pair": [x[:, :1], x.amax(-1)]}


def _detections(x: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    found = [(row > 0).nonzero().flatten() for row in x]
    return [{"at": at, "score": row[at]} for row, at in zip(x, found, strict=True)]


def _small(x: torch.Tensor) -> torch.Tensor:
    if (x > 100).any():
        raise ValueError("too much")
    return x + 1


double = Of(_double)
fields = Of(_fields)
detector = Of(_detections)
picky = Of(_small)
linear = _seeded(lambda: nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)))
normed = _seeded(lambda: nn.BatchNorm1d(4))


class Noted(nn.Module):
    """Doubles, and appends to a file how many rows each call had."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with open(self.path, "a") as file:
            print(len(x), file=file)
        return x * 2


# ---- so it is for the example's shapes and options, and not for others -----------------------------


def _framed(x: torch.Tensor) -> torch.Tensor:
    windows = x.view(-1, 4)
    return (windows - windows.amax(1, keepdim=True)).view(len(x), -1)


def _swapped(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1, 2, 3).flip(1).view(-1, 3)


def _each_by_itself(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([row.cumsum(0) for row in x])


def _centred(x: torch.Tensor, centre: bool = False) -> torch.Tensor:
    return x - x.mean(0) if centre else x


def _scaled(x: torch.Tensor, options: dict[str, float]) -> torch.Tensor:
    scale = options.pop("scale", 1.0)
    if (x > 100).any():
        raise ValueError("too much")
    return x * scale


attends = _seeded(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))
conv = _seeded(lambda: nn.Conv2d(3, 3, 3))
framed = Of(_framed)
swapped = Of(_swapped)
each_by_itself = Of(_each_by_itself)
centred = Of(_centred)
scaled = Of(_scaled)


# ---- no row is a request's -----------------------------------------------------------------------


def _kept(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


def _shared(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(0)


kept = Of(_kept)
shared = Of(_shared)
normed_in_training = nn.BatchNorm1d(4, track_running_stats=False).train()


# ---- a callable of all kinds of answers ------------------------------------------------------------

Pair = namedtuple("Pair", "left right")


@dataclass
class Held:
    """No answer can hold one."""

    value: Any


def _raise(value: Any) -> None:
    raise ValueError(f"no {value}")


class Odd(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise AttributeError("text")


def _raise_oddly(value: Any) -> None:
    raise Odd(value)


ANSWERS: dict[str, Callable[[Any], Any]] = {
    "type": lambda value: f"{type(value).__name__} {value!r}",
    "text": lambda value: f"{value}",
    "bytes": lambda value: repr(value).encode(),
    "bytearray": lambda value: bytearray(repr(value).encode()),
    "same": lambda value: value,
    "none": lambda _: None,
    "number": lambda value: len(repr(value)) / 4,
    "bool": bool,
    "empty": lambda _: torch.empty(0, 3),
    "scalar": lambda value: torch.tensor(len(repr(value))),
    "nested": lambda value: {1: [value, (value, None)], "text": repr(value)},
    "namedtuple": lambda value: Pair(value, repr(value)),
    "dataclass": Held,
    "generator": lambda value: (part for part in [value]),
    "set": lambda value: {repr(value)},
    "complex": lambda value: torch.ones(1) * 1j,
    "raise": _raise,
    "raise oddly": _raise_oddly,
}


class Shown:
    """A callable that answers as it is asked to."""

    def __call__(self, how: str, value: Any = None) -> Any:
        return ANSWERS[how](value)


shown = Shown()
