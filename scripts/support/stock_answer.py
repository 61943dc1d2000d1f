"""What models answer in ordinary Python processes, from their source.

Run as ``python -P stock_answer.py ROOT SPEC FOLDER [ROOT SPEC FOLDER ...]``. For each, a process of
its own builds the SPEC's object and calls it on its example inputs, with seeds, as an archive's
self-test does. It writes two files to FOLDER. ``answer.pt`` is a dict of ``kind``, ``args``,
``kwargs`` and ``expected``. ``entry.pt`` is the object itself, as torch.save writes it. What is
packaged is compared with this; nothing of interpool is imported.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

SEED = 0


def main(words: list[str]) -> None:
    for root, spec, folder in zip(words[::3], words[1::3], words[2::3], strict=True):
        child = os.fork()  # torch is imported once, and has no threads yet
        if not child:
            answer(root, spec, Path(folder))
            sys.stdout.flush()
            os._exit(0)  # an exception has ended the child before, with its traceback
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"no answer of {spec} in {root}: status {status}")


def answer(root: str, spec: str, folder: Path) -> None:
    sys.path.insert(0, root)
    name, _, build = spec.partition(":")
    module = importlib.import_module(name)
    seed()
    given = module.example_inputs()
    seed()
    entry = getattr(module, build)()
    kind = "module" if isinstance(entry, torch.nn.Module) else "handler"
    args, kwargs = given if isinstance(given, tuple) else (given,), {}
    if isinstance(given, dict):
        args, kwargs = (), given
    if isinstance(entry, torch.nn.Module):
        entry.eval()
    torch.save(entry, folder / "entry.pt")  # before it runs: running may change it
    seed()
    expected = data(call(entry, args, kwargs))
    torch.save({"kind": kind, "args": args, "kwargs": kwargs, "expected": expected}, folder / "answer.pt")
    if "interpool" in sys.modules:
        raise SystemExit("interpool was imported, so this is no independent reference")


def seed() -> None:
    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)


def call(entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(entry, torch.nn.Module):
        with torch.inference_mode():
            return entry(*args, **kwargs)
    if hasattr(entry, "handle"):
        return entry.handle(*args, None)
    return entry.postprocess(entry.inference(entry.preprocess(*args)))


def data(value: Any) -> Any:
    """The answer as tensors, numbers, strings, lists and dicts; tuples are lists."""
    if isinstance(value, dict):
        return {str(key): data(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [data(part) for part in value]
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise SystemExit(f"an answer that cannot be compared: {type(value)}")


if __name__ == "__main__":
    main(sys.argv[1:])
