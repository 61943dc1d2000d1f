from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[dict[str, str]], Path]


@pytest.fixture
def project(tmp_path: Path) -> Write:
    """Writes a user's project, ``{path: source}``, and gives its root."""
    root = tmp_path / "project"

    def write(files: dict[str, str]) -> Path:
        for name, source in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source), encoding="utf-8")
        return root

    return write
