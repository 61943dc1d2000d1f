"""What the chaos serves: models whose answers can be checked, and one that does what no model should."""

from __future__ import annotations

import builtins
import codecs
import contextlib
import copyreg
import ctypes
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

THREADS = 500  # without end would be the machine's end
OURS = "chaos_ours"


class Innocent:
    """Answers with what its weights, its environment and torch's functions make of a number."""

    def initialize(self, context: Any) -> None:
        self.weight = torch.arange(64.0).reshape(8, 8) / 64
        self.directory = os.getcwd()

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        return [self._one((row.get("body") or row.get("data"))["x"]) for row in data]

    def _one(self, x: int) -> dict[str, Any]:
        y = torch.relu(self.weight @ torch.full((8,), float(x)) - 3.0)
        here = os.getcwd() == self.directory and "CHAOS" not in os.environ
        same = float(torch.nn.Identity()(torch.tensor(float(x))))
        text = json.dumps({"x": x}) + b"\xff".decode("ascii", "replace")
        return {"x": x, "y": float(y.sum()), "here": here, "same": same, "text": text, "found": _found()}


def _found() -> list[str]:
    """What goes by the name that those who leave traces use."""
    places = {"torch.nn": torch.nn, "builtins": builtins, "json": json, "torch.Tensor": torch.Tensor}
    found = [name for name, place in places.items() if hasattr(place, OURS)]
    found += [name for name, _ in shutil.get_archive_formats() if name == OURS]
    with contextlib.suppress(LookupError):
        found.append(codecs.lookup(OURS).name)
    return found


def answer_of(x: int) -> dict[str, Any]:
    """What an innocent model has to answer."""
    model = Innocent()
    model.initialize(None)
    return model._one(x)


def _raise() -> None:
    raise RuntimeError("as it was asked")


def _recurse() -> None:
    _recurse()


def _hoard_objects() -> None:
    kept: Any = []
    while True:
        kept.append(bytearray(1 << 18))


def _hoard_tensors() -> None:
    kept = []
    while True:
        kept.append(torch.ones(1 << 18))


def _loop() -> None:
    while True:
        pass


def _loop_in_c() -> None:
    sum(iter(int, 1))


def _start_threads() -> None:
    for _ in range(THREADS):
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()


def _close_descriptors() -> None:
    os.closerange(3, 512)


def _close_one_by_one() -> None:
    for descriptor in range(3, 128):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _change_environment() -> None:
    os.environ["CHAOS"] = "1"
    for name in ("PATH", "HOME", "TMPDIR"):
        os.environ.pop(name, None)


def _bind(owner: object, name: str, value: object) -> None:
    """Bind a name in a way that the source does not show: the innocent have the same."""
    setattr(owner, name, value)


def _patch_torch() -> None:
    _bind(torch, "relu", lambda x: x * 0)


WAYS: dict[str, Callable[[], object]] = {
    "raise": _raise,
    "sys.exit": lambda: sys.exit(3),
    "os._exit": lambda: os._exit(3),
    "abort": os.abort,
    "segfault": lambda: ctypes.string_at(8),
    "recurse": _recurse,
    "hoard objects": _hoard_objects,
    "hoard tensors": _hoard_tensors,
    "loop": _loop,
    "loop in C": _loop_in_c,
    "threads": _start_threads,
    "close a range": _close_descriptors,
    "close descriptors": _close_one_by_one,
    "chdir": lambda: os.chdir("/"),
    "environment": _change_environment,
    "patch torch": _patch_torch,
}


def _exchange_code() -> None:
    _bind(torch.nn.Identity.forward, "__code__", (lambda self, input: input * 0).__code__)  # noqa: A006


# What a model leaves in the interpreter that its neighbours would answer with.
TRACES: dict[str, Callable[[], object]] = {
    "hook": lambda: torch.nn.modules.module.register_module_forward_hook(lambda _m, _a, out: out * 0),
    "name": lambda: _bind(torch.nn, OURS, Evil),
    "builtin": lambda: _bind(builtins, OURS, lambda: 1),
    "module": lambda: _bind(json, OURS, sys.modules[__name__]),
    "method": lambda: _bind(torch.Tensor, OURS, lambda self: self),
    "patch": _patch_torch,
    "code": _exchange_code,
    "registry": lambda: shutil.register_archive_format(OURS, lambda *_: ""),
    "pickling": lambda: copyreg.pickle(torch.Size, lambda size: (list, (list(size),))),
    "codec": lambda: codecs.register(lambda name: codecs.lookup("ascii") if name == OURS else None),
    "errors": lambda: codecs.register_error("replace", lambda error: ("", error.end)),
    "encoder": lambda: _bind(json.JSONEncoder, "encode", lambda _self, _value: "{}"),
}


class Tracing(Innocent):
    """A handler: leaves a trace at its load or in its calls, or both fails and does so, as its name says."""

    def initialize(self, context: Any) -> None:
        way, self.when, _ = context.model_name.split("-")
        self.leave = TRACES[way]
        super().initialize(context)
        if self.when in ("load", "failure"):
            self.leave()
        if self.when == "failure":
            raise RuntimeError("as it was asked")

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        if self.when == "call":
            self.leave()
        return ["done"] * len(data)


class Evil:
    """A handler: goes the way that the request names."""

    def initialize(self, context: Any) -> None:
        pass

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        return [str(WAYS[(row.get("body") or row.get("data"))["way"]]()) for row in data]
