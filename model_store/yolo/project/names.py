"""What can be found, from the file beside this one: a name in each line."""

from __future__ import annotations

from pathlib import Path

NAMES = Path(__file__).with_name("names.txt").read_text(encoding="utf-8").split()
