"""Checks that paths in a TorchServe manifest stay inside the model's directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from interpool.native.errors import StructureError

NAMES: Final = ("serializedFile", "modelFile", "handler", "requirementsFile", "configFile")
RULE: Final = "mar-path"


def require_inside(model: Mapping[str, Any], manifest: object, directory: str | Path | None = None) -> None:
    """Refuse a manifest with a path that leads out of the model's directory.

    Args:
        model: the manifest's section about the model.
        manifest: path of the manifest, for the message.
        directory: the model's directory, in which links are resolved; None if the archive is not extracted.

    Raises:
        StructureError: a path leads out, or is no valid name.
    """
    for key in NAMES:
        if why := _wrong(model.get(key), key, directory):
            raise StructureError(
                f"{manifest}: its {key} {model[key]!r} {why}. "
                "Put the file into the model's directory, name it there, and make the archive again",
                RULE,
            )


def _wrong(name: object, key: str, directory: str | Path | None) -> str:
    if name is None or name == "":
        return ""
    if not isinstance(name, str) or "\0" in name:
        return "is no file's name"
    if key == "handler":
        name = name.partition(":")[0]
    if os.path.isabs(name) or os.path.normpath(name).split("/")[0] == "..":
        return "leads out of the model's directory"
    if directory is None:
        return ""
    root = os.path.realpath(directory)
    if os.path.commonpath([root, os.path.realpath(os.path.join(root, name))]) != root:
        return "is a link that leads out of the model's directory"
    return ""
