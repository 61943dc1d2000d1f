"""Lines of source, as every message shows them."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def source_line(path: object, line: int | None, text: str | None) -> str:
    """``path:line: text``."""
    return f"{path}:{line}: {(text or '').strip()}"


def frame_line(frame: FrameType, root: Path) -> str:
    """Where a frame is, as ``path:line: text``, with the path below ``root`` if it lies there."""
    filename = frame.f_code.co_filename
    path = Path(filename).resolve()
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    return source_line(shown, frame.f_lineno, linecache.getline(filename, frame.f_lineno))
