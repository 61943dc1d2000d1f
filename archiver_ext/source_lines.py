"""Formats lines of source for messages."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_END = re.compile(r"\r\n|\r|\n")


def lines_of(source: str) -> list[str]:
    """Split a source into lines as Python numbers them; ``str.splitlines`` also splits at form feeds."""
    return _END.split(source)


def source_line(path: object, line: int | None, text: str | None) -> str:
    """Return ``path:line: text``."""
    return f"{path}:{line}: {(text or '').strip()}"


def frame_line(frame: FrameType, shown: Callable[[Path], str]) -> str:
    """Return a frame's location as ``path:line: text``; ``shown`` formats the path."""
    filename = frame.f_code.co_filename
    return source_line(shown(Path(filename)), frame.f_lineno, linecache.getline(filename, frame.f_lineno))
