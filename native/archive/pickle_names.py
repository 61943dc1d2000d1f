"""What a pickle's globals are called, and which of them come from outside of the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpool.native.upstream.cpython_private import RENAMED_GLOBALS, RENAMED_MODULES
from interpool.native.upstream.torch_private import IMPLICIT_EXTERNS

if TYPE_CHECKING:
    from collections.abc import Collection


def current_name(module: str, name: str, protocol: int) -> tuple[str, str]:
    """Return the Python 3 name of a pickle's global.

    Args:
        module: the module that the pickle names.
        name: the name in it.
        protocol: the pickle's protocol; below 3, Python 2 names are translated.
    """
    if protocol >= 3:
        return module, name
    if (module, name) in RENAMED_GLOBALS:
        return RENAMED_GLOBALS[(module, name)]
    return RENAMED_MODULES.get(module, module), name


def is_external(module: str, externs: Collection[str]) -> bool:
    """Return whether torch.package imports a module from outside of the archive.

    Args:
        module: its dotted name.
        externs: the archive's extern modules.
    """
    parts = module.split(".")
    prefixes = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return not set(IMPLICIT_EXTERNS).isdisjoint(prefixes) or any(prefix in externs for prefix in prefixes)
