"""Packages that TorchServe installed for one model.

With ``install_py_dep_per_model``, TorchServe runs pip on the .mar's requirements file, into the model's
directory. A stock worker has that directory on its path. With ``useVenv`` in the model's configuration, pip
installs into a virtual environment in that directory, and a stock worker runs that environment's Python.

An interpreter of the pool has many models. Such directories come last on its path, so that no model changes
what the others import. If two models bring different versions of one package, an interpreter uses the
version of the first. Models that need different versions belong in different pools.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

_added: list[str] = []


def make_importable(model_dir: str, mar_manifest: dict[str, Any] | None) -> None:
    """Let this interpreter import what pip installed into a model's directory, if it installed anything.

    The search path loses the directories of models that are gone.

    Args:
        model_dir: the directory into which TorchServe extracted the .mar.
        mar_manifest: the .mar's manifest; None if there is none.
    """
    for gone in [path for path in _added if not os.path.isdir(path)]:
        _added.remove(gone)
        if gone in sys.path:
            sys.path.remove(gone)
    wanted = ((mar_manifest or {}).get("model") or {}).get("requirementsFile")
    if not wanted:
        return
    environment = Path(model_dir, "venv", "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    for directory in (Path(model_dir), environment / "site-packages"):
        path = str(directory)
        if path not in sys.path and any(directory.glob("*.dist-info")):
            sys.path.append(path)
            _added.append(path)
            importlib.invalidate_caches()
