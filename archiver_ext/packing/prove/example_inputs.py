"""Finds a model's example inputs: beside the SPEC, or in a given place."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.options import INPUT_FILES
from interpool.archiver_ext.packing.spec import call_spec, find_spec
from interpool.archiver_ext.verify.self_test import Sample

if TYPE_CHECKING:
    from interpool.native.archive.format import EntryKind

CONVENTION = "example_inputs"


def find_inputs(spec: str, kind: EntryKind, root: Path, given: str) -> Sample | None:
    """Return the example inputs for the object of ``spec``.

    Args:
        spec: the model's SPEC.
        kind: of its object.
        root: the project's directory, on ``sys.path``.
        given: their source: a SPEC of their own, a ``.json`` or ``.pt`` file, or "" for ``example_inputs`` in
            the model's module, if it exists.

    Returns:
        None if ``given`` is "" and the default does not exist.

    Raises:
        PackError: they cannot be read, or do not fit such an object.
    """
    if Path(given).suffix in INPUT_FILES:
        sample = Sample.of(_read(Path(given), kind))
    elif given and ":" not in given:
        raise PackError(
            f"--inputs {given}: this is neither a SPEC (package.module:name) nor a .json, .pt or .pth file"
        )
    elif given:
        sample = Sample.of(_made(given, root))
    else:
        beside = f"{spec.partition(':')[0]}:{CONVENTION}"
        if not hasattr(find_spec(spec, root).module, CONVENTION):
            return None
        sample = Sample.of(_made(beside, root))
    where = given or f"{spec.partition(':')[0]}:{CONVENTION}"
    if kind == "handler" and not (len(sample.args) == 1 and not sample.kwargs and _is_batch(sample.args[0])):
        raise PackError(
            f"{where}: the example inputs of a handler are one batch as TorchServe gives it: a list "
            'of rows such as [{"body": ...}]'
        )
    return sample


def _made(spec: str, root: Path) -> object:
    made = call_spec(spec, root)
    if made is None or isinstance(made, Generator):
        raise PackError(
            f"{spec}: the example inputs are {'None' if made is None else 'a generator'}\n"
            "  What to do: return what the model is called with once, a tuple for several arguments; "
            "(None,) if it is None"
        )
    return made


def _is_batch(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _read(path: Path, kind: EntryKind) -> Any:
    try:
        if path.suffix == ".json":
            found = json.loads(path.read_text(encoding="utf-8"))
            return _from_json(found, kind)
        return torch.load(path, weights_only=True)
    except Exception as error:  # noqa: BLE001 (torch.load may raise any exception for a damaged file)
        raise PackError(
            f"{path}: example inputs cannot be read from it ({type(error).__name__}: {error}); a .pt "
            "file holds tensors as torch.save writes them, a .json file numbers and texts"
        ) from None


def _from_json(found: Any, kind: EntryKind) -> Any:
    """Convert to a request's body for a handler; for others, convert lists of numbers to tensors."""
    if kind == "handler":
        return [{"body": found}]
    if isinstance(found, dict):
        return {name: _tensor(value) for name, value in found.items()}
    return _tensor(found)


def _tensor(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    try:
        return torch.tensor(value)
    except (TypeError, ValueError):
        return value
