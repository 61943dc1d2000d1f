"""A model that changes what is not its own, in its ``initialize`` or in a call; and one that would notice."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch


def _bind(owner: object, name: str, value: object) -> None:
    """Bind a name in a way that the source does not show."""
    setattr(owner, name, value)


def _patch_torch() -> None:
    _bind(torch, "relu", lambda x: x * 0 - 1)


def _leave_a_hook() -> None:
    torch.nn.modules.module.register_module_forward_hook(lambda _module, _args, output: output * 0)


def _exchange_code() -> None:
    _bind(torch.nn.Identity.forward, "__code__", (lambda self, input: input * 0).__code__)  # noqa: A006


def _set_a_variable() -> None:
    os.environ["PILLOW_BLOCKS_MAX"] = "7"
    import PIL.Image  # noqa: F401 - which reads it


WAYS = {
    "patch torch": _patch_torch,
    "leave a hook": _leave_a_hook,
    "exchange code": _exchange_code,
    "set a variable": _set_a_variable,
}


class Vandal:
    """A handler: does what the request says."""

    def initialize(self, context: Any) -> None:
        way, _, when = context.model_name.replace("-", " ").partition(" at ")
        if when == "load":
            WAYS[way]()

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        return [self._one(row.get("body") or row.get("data")) for row in data]

    def _one(self, wish: Any) -> Any:
        if isinstance(wish, dict) and "way" in wish:
            WAYS[wish["way"]]()
        return {"relu": float(torch.relu(torch.tensor(3.0)))}


def vandal() -> Vandal:
    return Vandal()


class Careful:
    """A handler that uses what vandals like to change, and answers with what came of it."""

    def initialize(self, context: Any) -> None:
        pass

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        return [self._one() for _ in data]

    def _one(self) -> Any:
        pillow = sys.modules.get("PIL.Image")
        return {
            "relu": float(torch.relu(torch.tensor(3.0))),
            "module": float(torch.nn.Identity()(torch.tensor(5.0))),
            "blocks": pillow.core.get_blocks_max() if pillow else 0,
        }


def careful() -> Careful:
    return Careful()
