"""A model that changes what is not its own, in its ``initialize`` or in a call; and one that would notice."""

from __future__ import annotations

import builtins
import functools
import json
import os
import shutil
import sys
from typing import Any
from unittest import mock

import torch


def _bind(owner: object, name: str, value: object) -> None:
    """Bind a name in a way that the source does not show."""
    setattr(owner, name, value)


def _patch_torch() -> None:
    _bind(torch, "relu", lambda x: x * 0 - 1)


def _swap_torch() -> None:
    _bind(torch, "relu", torch.sigmoid)


def _patch_method() -> None:
    _bind(torch.Tensor, "sum", lambda self, *_, **__: self * 0)


def _delete_builtin() -> None:
    vars(builtins).pop("sorted")


def _wrap_json() -> None:
    _bind(json, "dumps", functools.partial(json.dumps, default=str))


def _mock() -> None:
    mock.patch("torch.abs").start()


def _leave_a_hook() -> None:
    torch.nn.modules.module.register_module_forward_hook(lambda _module, _args, output: output * 0)


def _leave_a_name() -> None:
    _bind(torch.nn, "Ours", Vandal)


def _exchange_code() -> None:
    _bind(torch.nn.Identity.forward, "__code__", (lambda self, input: input * 0).__code__)  # noqa: A006


def _forget_modules() -> None:
    for name in ("torch", "json"):
        del sys.modules[name]


def _leave_in_a_registry() -> None:
    shutil.register_archive_format("ours", lambda *_: "")


def _set_a_variable() -> None:
    os.environ["PILLOW_BLOCKS_MAX"] = "7"
    import PIL.Image  # noqa: F401 - which reads it


WAYS = {
    "patch torch": _patch_torch,
    "swap torch": _swap_torch,
    "patch a method": _patch_method,
    "delete a builtin": _delete_builtin,
    "wrap json": _wrap_json,
    "leave a mock": _mock,
    "leave a hook": _leave_a_hook,
    "leave a name": _leave_a_name,
    "exchange code": _exchange_code,
    "leave in a registry": _leave_in_a_registry,
    "set a variable": _set_a_variable,
    "forget modules": _forget_modules,
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
        import json as found

        numbers = [float(torch.relu(torch.tensor(3.0))), float(torch.ones(2).sum())]
        text = found.dumps(sorted([2, 1]))
        module = float(torch.nn.Identity()(torch.tensor(5.0)))
        names = [name for name in ("Ours",) if hasattr(torch.nn, name)]
        formats = [name for name, _ in shutil.get_archive_formats() if name == "ours"]
        pillow = sys.modules.get("PIL.Image")
        return {
            "numbers": numbers,
            "text": text,
            "abs": float(torch.abs(torch.tensor(-1.0))),
            "module": module,
            "names": names + formats,
            "blocks": pillow.core.get_blocks_max() if pillow else 0,
        }


def careful() -> Careful:
    return Careful()


class Poisoner:
    """A handler that leaves, if asked to, something in its interpreter that nobody looks for."""

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        for row in data:
            if row.get("body"):
                _bind(json, "of_the_poisoner", True)
        return ["done"] * len(data)


def poisoner() -> Poisoner:
    return Poisoner()


class Fragile:
    """A handler that cannot be initialized where a poisoner was."""

    def initialize(self, context: Any) -> None:
        if hasattr(json, "of_the_poisoner"):
            raise RuntimeError("somebody was here")

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        return ["well"] * len(data)


def fragile() -> Fragile:
    return Fragile()
