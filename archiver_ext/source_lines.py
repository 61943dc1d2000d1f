"""Lines of source, as every message shows them."""

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
    """A source's lines, ended where Python's own line numbers have their ends, and nowhere else.

    ``str.splitlines`` ends lines at form feeds, too.
    """
    return _END.split(source)


def source_line(path: object, line: int | None, text: str | None) -> str:
    """``path:line: text``."""
    return f"{path}:{line}: {(text or '').strip()}"


def frame_line(frame: FrameType, shown: Callable[[Path], str]) -> str:
    """Where a frame is, as ``path:line: text``, with the path as ``shown`` gives it."""
    filename = frame.f_code.co_filename
    return source_line(shown(Path(filename)), frame.f_lineno, linecache.getline(filename, frame.f_lineno))
