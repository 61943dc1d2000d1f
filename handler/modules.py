"""The handler file of an extracted .mar, kept apart from those of other models.

TorchServe's loader imports a model's handler by its bare module name from ``sys.path``. In a
process of many models the second model's file of that name would never be read, and whatever
else lies beside it could shadow modules that others import.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from interpool.handler.errors import ServeError
from interpool.handler.shim import HANDLER_STEM


@contextmanager
def handler_module(model_dir: str) -> Iterator[None]:
    """Let TorchServe's loader find this model's own handler file, and no other file of it.

    The module is forgotten by name afterwards and lives on in the objects made from it.
    Raises ServeError if the file is missing.
    """
    path = os.path.join(model_dir, f"{HANDLER_STEM}.py")
    spec = importlib.util.spec_from_file_location(HANDLER_STEM, path)
    if spec is None or spec.loader is None or not os.path.isfile(path):
        raise ServeError(f'{path} is missing: make the archive again with --handler "$(interpool handler)"')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[HANDLER_STEM] = module
    try:
        yield
    finally:
        sys.modules.pop(HANDLER_STEM, None)
