"""An environment for each framework of the serving benchmark, made when it is first needed.

What pip installs goes to ``results/environments/`` (or $INTERPOOL_SERVING_ENVIRONMENTS), one folder for a
set of pins, and nowhere else. The largest part, torch, comes from the Python that runs the benchmark: a
``.pth`` file puts its packages behind the environment's own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.shared.checkout import ROOT

ENVIRONMENTS = Path(
    os.environ.get("INTERPOOL_SERVING_ENVIRONMENTS") or ROOT / "results" / "environments"
).absolute()
_DONE = "installed.json"


class CannotBeInstalledError(RuntimeError):
    """pip did not install it; what pip said last."""


def python_of(pins: tuple[str, ...]) -> Path:
    """The Python of an environment with these packages; raises CannotBeInstalledError."""
    folder = ENVIRONMENTS / re.sub(r"[^\w.=-]+", "_", "_".join(pins))
    python = folder / "bin" / "python"
    if not (folder / _DONE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, symlinks=True, with_pip=False)
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        install = [*pip, "install", "--quiet", "--no-compile", "--only-binary", ":all:", *pins]
        done = subprocess.run(install, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise CannotBeInstalledError(said[-1] if said else f"pip ended with {done.returncode}")
        listed = subprocess.run(
            [*pip, "list", "--format=json"], capture_output=True, text=True, env=environment, check=True
        )
        (own,) = (folder / "lib").glob("python*/site-packages")
        (own / "behind.pth").write_text("".join(f"{path}\n" for path in site.getsitepackages()))
        versions = {one["name"]: one["version"] for one in json.loads(listed.stdout)}
        (folder / _DONE).write_text(json.dumps(versions, indent=1) + "\n")
    return python


def versions_in(python: Path) -> dict[str, str]:
    """What pip installed there."""
    found: dict[str, str] = json.loads((python.parents[1] / _DONE).read_text())
    return found
