"""Where things lie in the checkout."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Sources of the extension modules, and of the libraries of operators, that tests build.
EXTENSIONS = ROOT / "tests/test_native/extensions"
