"""Runs code in a fresh Python process that has torch and nothing of interpool's."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

# What a reader without interpool does with an archive.
LOAD = """
import json, sys
from torch.package import PackageImporter
def load(path):
    return PackageImporter(path).load_pickle("interpool-archive", "entry.pkl")
"""


def run_stock(code: str, *args: str | Path, cwd: Path) -> Any:
    """Run ``code``, which prints one line of JSON; gives the value."""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", LOAD + textwrap.dedent(code), *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
