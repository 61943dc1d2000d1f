"""Is this machine able to serve? What TorchServe needs, beside what the pool needs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess

from interpool.handler.errors import OverlayError
from interpool.handler.frontend.overlay import overlay
from interpool.native.diagnostics.doctor import Check
from interpool.native.upstream.requirements import pip_install, satisfies

MINIMUM_JAVA = 11


def java_path() -> str | None:
    """The ``java`` that TorchServe would run: JAVA_HOME's, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(os.path.join(home, "bin", "java") if home else "java")


def checks() -> list[Check]:
    """Look at everything that serving needs; never raises."""
    return [_java(), _torchserve(), _yaml(), _archiver(), _overlay()]


def _java() -> Check:
    hint = f"install Java {MINIMUM_JAVA} or newer (Debian: apt install openjdk-17-jre-headless)"
    path = java_path()
    if path is None:
        where = "JAVA_HOME/bin" if os.environ.get("JAVA_HOME") else "PATH"
        return Check("java", False, f"not found in {where}", hint)
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check("java", False, f"{path}: {error}", hint)
    first_line = done.stderr.partition("\n")[0]
    version = re.search(r'"(?:1\.)?(\d+)', first_line)
    ok = version is not None and int(version[1]) >= MINIMUM_JAVA
    return Check("java", ok, f"{first_line} ({path})", "" if ok else hint)


def _torchserve() -> Check:
    hint = pip_install("torchserve")
    try:
        version = importlib.metadata.version("torchserve")
    except importlib.metadata.PackageNotFoundError:
        return Check("torchserve", False, "not installed", hint)
    ok = satisfies("torchserve", version)
    return Check("torchserve", ok, version, "" if ok else hint)


def _yaml() -> Check:
    ok = importlib.util.find_spec("yaml") is not None
    detail = "installed" if ok else "missing: TorchServe's workers crash at once without it"
    return Check("PyYAML", ok, detail, "" if ok else "pip install PyYAML")


def _archiver() -> Check:
    ok = importlib.util.find_spec("model_archiver") is not None
    hint = "" if ok else pip_install("torch-model-archiver")
    return Check("torch-model-archiver", ok, "installed" if ok else "not installed", hint)


def _overlay() -> Check:
    try:
        return Check("overlay", True, str(overlay()))
    except OverlayError as error:
        return Check("overlay", False, str(error), "see the line above on torchserve")
