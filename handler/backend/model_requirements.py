"""Packages that TorchServe installed for one model.

With ``install_py_dep_per_model`` it runs pip on the .mar's requirements file, into the model's
directory, which a stock worker has on its path; or, with ``useVenv`` in the model's configuration, into
a virtual environment in that directory, whose Python a stock worker is. An interpreter of the pool
has many models: such directories come last on its path, so that no model changes what the others
import. Of two models that bring different versions of one package, the first counts in an interpreter; models
that cannot agree belong into different pools.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

_added: list[str] = []


def make_importable(model_dir: str, mar_manifest: dict[str, Any] | None) -> None:
    """Let this interpreter import what pip installed into a model's directory, if it did.

    Directories of models that are gone are forgotten.
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
