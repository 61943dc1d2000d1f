"""The example inputs of a packed model, from its archive, for clients that ask which inputs it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from interpool.native.archive.format import Manifest, member_name
from interpool.native.archive.reader import read_manifest, read_member, read_records
from interpool.native.errors import ArchiveError

# The Open Inference Protocol's names.
_DATATYPES: Final = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
}
_MOST_SHOWN: Final = 64 << 10  # bytes: larger bodies are not shown


@dataclass(frozen=True)
class Examples:
    """An archive's description of its model's requests; empty for an ordinary archive.

    Attributes:
        inputs: its tensors, as the Open Inference Protocol has them: ``name``, ``datatype`` and ``shape``,
            with -1 for a dimension of any size.
        request: the OpenAPI content of a request that the model has answered, by content type.
    """

    inputs: list[dict[str, Any]] = field(default_factory=list)
    request: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_directory(cls, directory: Path, model: dict[str, Any]) -> Examples:
        """Read the examples. They are empty if the directory has no packed model that can be read.

        Args:
            directory: the directory of an extracted archive.
            model: the model's part of its manifest.
        """
        name = str(model.get("serializedFile") or "")
        path = directory / Path(name).name
        try:
            with path.open("rb") as file:
                records = read_records(path.name, file)
                manifest = read_manifest(path.name, file, records)
                if manifest is None:
                    return cls()
                request = manifest["request"]
                body = b""
                if request is not None:
                    record = records[member_name(request["package"], request["resource"])]
                    body = read_member(path.name, file, record) if record.size <= _MOST_SHOWN else b""
        except (ArchiveError, OSError):  # the load of the model reports what is wrong with it
            return cls()
        return cls(list(_inputs(manifest)), _content(manifest, body))


def _inputs(manifest: Manifest) -> Iterator[dict[str, Any]]:
    described = manifest["inputs"]
    if manifest["entry"]["kind"] == "handler" or not isinstance(described, dict):
        return
    positional, named = list(described.get("args", ())), dict(described.get("kwargs", {}))
    if positional and len(positional) + len(named) > 1:
        return  # several are given by name, and the manifest has no names of positional ones
    shares = manifest["serving"]["batches"] in ("stack", "batch")
    for name, each in named.items() if named else [("input-0", one) for one in positional]:
        tensor = each.get("tensor") if isinstance(each, dict) else None
        if isinstance(tensor, dict) and tensor["dtype"] in _DATATYPES:
            shape = list(tensor["shape"])
            if shares and shape:
                shape[0] = -1
            yield {"name": name, "datatype": _DATATYPES[tensor["dtype"]], "shape": shape}


def _content(manifest: Manifest, body: bytes) -> dict[str, Any]:
    request = manifest["request"]
    if request is None:
        return {}
    kind = request["content_type"]
    if kind != "application/json" or not body:
        return {kind: {"schema": {"type": "string", "format": "binary"}}}
    try:
        return {kind: {"schema": {}, "example": json.loads(body)}}
    except ValueError:
        return {kind: {"schema": {}}}
