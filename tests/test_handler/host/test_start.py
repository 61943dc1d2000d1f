"""The pool host's process, until it listens."""

from __future__ import annotations

import subprocess
import sys


def test_what_is_imported_before_the_first_interpreter_starts_is_little() -> None:
    """Every millisecond there is one of the first model's first answer."""
    source = "import sys, interpool.handler.host.start; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint(
        {"pydantic", "yaml", "torch", "numpy", "psutil", "click", "shutil", "json", "asyncio"}
    )
    assert "interpool.handler.config" not in loaded
    assert len(loaded) < 130
