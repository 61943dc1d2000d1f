"""Where and with what a result was made."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any


def made_on() -> dict[str, Any]:
    """Date, machine, versions and options, for a benchmark's JSON.

    Returns:
        ``date``. ``machine``: its processor, cores, memory in GB (10⁹ bytes) and kernel. ``versions``: of
        CPython, torch, TorchServe and Java, as far as they are there. ``options``: of the command, in which
        PATH stands for files and folders.
    """
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": {
            "cpu": _processor(),
            "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
            "kernel": platform.release(),
        },
        "versions": {
            "CPython": platform.python_version(),
            **{name: version for name in ("torch", "torchserve") if (version := _version(name))},
            **({"Java": java} if (java := _java()) else {}),
        },
        "options": [re.sub("[^=]*/.*", "PATH", word) for word in sys.argv[1:]],
    }


def _processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _java() -> str:
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    found = re.search(r'version "([^"]+)"', done.stderr)
    return found[1] if found else ""
