"""Checks whether this machine can serve: the needs of TorchServe, beside those of the pool."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from interpool.handler.errors import OverlayError
from interpool.handler.frontend import shim
from interpool.handler.frontend.overlay import overlay
from interpool.handler.torchserve import (
    ARCHIVER_FILES,
    MINIMUM_JAVA,
    TS_FILES,
    differences,
    installed_ts,
)
from interpool.native.diagnostics.doctor import Check
from interpool.native.provision import installers
from interpool.native.upstream.requirements import pip_install, requirement, satisfies


def java_path() -> str | None:
    """The ``java`` that TorchServe would run: JAVA_HOME's, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(os.path.join(home, "bin", "java") if home else "java")


def java_hint() -> str:
    """How to install Java on this system."""
    return f"install Java {MINIMUM_JAVA} or newer ({installers.install(installers.JAVA)})"


def missing_java() -> Check:
    """The failed check of Java, with the reason, for the case that ``java_path`` gives none."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        return Check("java", False, "there is none on PATH", java_hint())
    what = "holds no bin/java" if os.path.isdir(home) else "does not exist"
    elsewhere = shutil.which("java")
    hint = f"{elsewhere} is on PATH" if elsewhere else java_hint()
    return Check(
        "java", False, f"JAVA_HOME is {home}, which {what}", f"correct JAVA_HOME, or unset it: {hint}"
    )


def checks() -> Iterator[Check]:
    """Check one thing after another that serving needs. Raises nothing, and does not import TorchServe."""
    every = (_java, _torchserve, _torchserve_files, _yaml, _archiver, _overlay)
    for check in (*every, runtime_directory, working_directories):
        yield check()


def runtime_directory() -> Check:
    """Check whether shims and hosts can use the runtime directory. Does not create it."""
    name = "runtime directory"
    try:
        path = shim.runtime_base()
    except shim.Refused as error:
        return Check(name, False, str(error), "set INTERPOOL_RUNTIME_DIR to an absolute path, or unset it")
    hint = "set INTERPOOL_RUNTIME_DIR to a directory of this user with mode 0700, or to one that can be made"
    if os.path.isdir(path) and not os.path.islink(path):
        hint = f"chmod 700 {path}, or {hint}"
    try:
        shim.check_private(path, os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        parent = next(each for each in Path(path).parents if each.exists())
        ok = os.access(parent, os.W_OK | os.X_OK)
        said = f"{path}, made when it is needed" if ok else f"{path} cannot be made in {parent}"
        return Check(name, ok, said, "" if ok else hint)
    except shim.Refused as error:
        return Check(name, False, str(error).partition(";")[0], hint)
    except OSError as error:
        return Check(name, False, f"{path}: {error.strerror}", hint)
    return Check(name, True, path)


def working_directories() -> Check:
    """Check whether ordinary archives can be in the pool; if not, the result is a warning."""
    name = "ordinary archives"
    try:
        from interpool.native.directories import REMEDY, WHY_NOT, threads_have_directories
    except ImportError as error:
        return Check(
            name, False, f"interpool's compiled parts cannot be loaded: {error}", "install torch first"
        )
    if threads_have_directories():
        return Check(name, True, "each can have its own working directory in the pool")
    return Check(
        name,
        True,
        f"{WHY_NOT}, so TorchServe's own workers serve them",
        REMEDY,
        word="WARN",
    )


def _java() -> Check:
    hint = java_hint()
    path = java_path()
    if path is None:
        return missing_java()
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check("java", False, f"{path}: {error}", hint)
    # Not the first line if JAVA_TOOL_OPTIONS is set, because Java prints that first.
    version = re.search(r'^.* version "(?:1\.)?(\d+).*$', done.stderr, re.MULTILINE)
    ok = version is not None and int(version[1]) >= MINIMUM_JAVA
    said = version[0] if version is not None else done.stderr.partition("\n")[0]
    return Check("java", ok, f"{said} ({path})", "" if ok else hint)


def _torchserve() -> Check:
    hint = pip_install("torchserve")
    try:
        version = importlib.metadata.version("torchserve")
    except importlib.metadata.PackageNotFoundError:
        return Check("torchserve", False, "not installed", hint)
    ok = satisfies("torchserve", version)
    tested = ", ".join(each.version for each in requirement("torchserve").specifier)
    detail = version if ok else f"{version}; interpool is tested with {tested} only"
    return Check("torchserve", ok, detail, "" if ok else hint)


def _torchserve_files() -> Check:
    name = "torchserve's files"
    try:
        package = installed_ts()
    except OverlayError as error:
        return Check(name, False, str(error), pip_install("torchserve"))
    return _unchanged(name, package, TS_FILES, "torchserve")


def _unchanged(name: str, package: Path, files: Mapping[str, str], distribution: str) -> Check:
    """Check whether the files on which interpool relies are the release's; if not, give a warning."""
    found = differences(package, files)
    if not found:
        return Check(name, True, f"{package}, as it was released")
    detail = f"in {package} these are not those of the release: {', '.join(found)}"
    hint = f"pip install --force-reinstall --no-deps {requirement(distribution)}"
    return Check(name, True, detail, hint, word="WARN")


def _yaml() -> Check:
    ok = importlib.util.find_spec("yaml") is not None
    detail = "installed" if ok else "missing: TorchServe's workers crash at once without it"
    return Check("PyYAML", ok, detail, "" if ok else "pip install PyYAML")


def _archiver() -> Check:
    name, hint = "torch-model-archiver", pip_install("torch-model-archiver")
    spec = importlib.util.find_spec("model_archiver")
    if spec is None or spec.origin is None:
        return Check(name, False, "not installed", hint)
    return _unchanged(name, Path(spec.origin).parent, ARCHIVER_FILES, name)


def _overlay() -> Check:
    try:
        return Check("overlay", True, str(overlay()))
    except OverlayError as error:
        return Check("overlay", False, str(error), "see the line above on torchserve")
