"""Formats tracebacks with the user's code, without internal frames."""

from __future__ import annotations

import contextlib
import pickle
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import torch.package

from interpool.native.upstream.torch_private import MANGLED, plain_name

if TYPE_CHECKING:
    from collections.abc import Callable

_OUR_FILES = str(Path(__file__).parent.parent)  # including the importer of archives
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + "/"
_TORCH_PACKAGE = str(Path(torch.package.__file__).parent)


def is_machinery(filename: str) -> bool:
    """Return whether a frame's file belongs to interpool, torch.package, pickle or the import system."""
    return (
        filename.startswith((_OUR_FILES, _TORCH_PACKAGE))
        or filename in (pickle.__file__, contextlib.__file__)
        or "importlib" in filename
    )


def _is_installed(filename: str) -> bool:
    """Return whether a frame's file is in the standard library or installed."""
    installed = {"site-packages", "dist-packages"}.intersection(Path(filename).parts)
    return bool(installed) or filename.startswith(("<frozen ", _STANDARD_LIBRARY))


def is_packaged(name: str) -> bool:
    """Return whether a module or file belongs to an archive, by its name: ``<torch_package_0>.a``."""
    return name.startswith(MANGLED)


def name_in_package(name: str) -> str:
    """Return a packaged module's or file's name in its archive; "" if it is not packaged."""
    return plain_name(name) if is_packaged(name) else ""


def readable_traceback(error: BaseException, shown: Callable[[str], str] = str) -> str:
    """Format the error's traceback and its causes': the user's frames, and the frame that raised.

    Args:
        error: the exception.
        shown: returns the text for a file's name.
    """
    found = traceback.TracebackException.from_exception(error)
    seen: list[traceback.TracebackException] = []
    waiting = [found]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.append(each)
        stack = [frame for frame in each.stack if not is_machinery(frame.filename)]
        # Keep the frame that raised, even if it is installed code.
        kept = [frame for frame in stack if frame is stack[-1] or not _is_installed(frame.filename)]
        for frame in kept:
            frame.filename = shown(frame.filename)
        each.stack[:] = kept
        waiting += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
    return "".join(found.format())
