"""Hides the installed distributions of archived modules: a server need not have them."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType


def hide_distributions(module: Any, hides: Callable[[FrameType, metadata.Distribution], bool]) -> None:
    """Make ``importlib.metadata``, or its backport, pass over distributions.

    Args:
        module: ``importlib.metadata`` or ``importlib_metadata``.
        hides: returns whether a distribution is hidden from a caller, given by its frame.
    """
    discover = module.Distribution.discover.__func__

    def discover_others(cls: type[metadata.Distribution], /, **given: Any) -> Iterator[metadata.Distribution]:
        caller = sys._getframe(1)
        return (found for found in discover(cls, **given) if not hides(caller, found))

    module.Distribution.discover = classmethod(discover_others)


def top_levels(found: metadata.Distribution) -> set[str]:
    """Return the top-level names of a distribution's modules."""
    names = set((found.read_text("top_level.txt") or "").split())
    return names or {
        file.parts[0].removesuffix(".py") for file in found.files or () if file.name.endswith(".py")
    }


def is_editable_in(found: metadata.Distribution, folders: Iterable[Path]) -> bool:
    """Return whether an editable install's working tree contains one of the folders."""
    url = json.loads(found.read_text("direct_url.json") or "{}")
    if not url.get("dir_info", {}).get("editable"):
        return False
    tree = Path(unquote(urlsplit(url["url"]).path)).resolve()
    return any(folder.is_relative_to(tree) for folder in folders)
