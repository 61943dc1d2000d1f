"""Lines of source, as every message shows them."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def source_line(path: object, line: int | None, text: str | None) -> str:
    """``path:line: text``."""
    return f"{path}:{line}: {(text or '').strip()}"


def frame_line(frame: FrameType, shown: Callable[[Path], str]) -> str:
    """Where a frame is, as ``path:line: text``, with the path as ``shown`` gives it."""
    filename = frame.f_code.co_filename
    return source_line(shown(Path(filename)), frame.f_lineno, linecache.getline(filename, frame.f_lineno))
