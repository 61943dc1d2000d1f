"""Tracebacks with the user's code in them, and without what led there."""

from __future__ import annotations

import contextlib
import pickle
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import torch.package

from interpool.native.upstream.torch_private import MANGLED

if TYPE_CHECKING:
    from collections.abc import Callable

_OUR_FILES = str(Path(__file__).parent)
_TORCH_PACKAGE = str(Path(torch.package.__file__).parent)


def is_machinery(filename: str) -> bool:
    """Whether a frame's file is ours, torch.package's, pickle's or the import system's."""
    return (
        filename.startswith((_OUR_FILES, _TORCH_PACKAGE))
        or filename in (pickle.__file__, contextlib.__file__)
        or "importlib" in filename
    )


def is_packaged(name: str) -> bool:
    """Whether a module's or a file's name is that of code out of an archive: ``<torch_package_0>.a``."""
    return name.startswith(MANGLED)


def name_in_package(name: str) -> str:
    """A packaged module's or file's name as it is in its archive; "" if it is not out of one."""
    return name.partition(">.")[2] if is_packaged(name) else ""


def readable_traceback(error: BaseException, shown: Callable[[str], str] = str) -> str:
    """The error's traceback, and its causes', without the machinery's frames.

    Args:
        error: the exception.
        shown: the name to show for a file's name.
    """
    found = traceback.TracebackException.from_exception(error)
    seen: list[traceback.TracebackException] = []
    waiting = [found]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.append(each)
        kept = [frame for frame in each.stack if not is_machinery(frame.filename)]
        for frame in kept:
            frame.filename = shown(frame.filename)
        each.stack[:] = kept
        waiting += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
    return "".join(found.format())
