"""Commands that install programs and a shared libpython on common systems."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

_BY_ID = {
    "debian": "debian",
    "ubuntu": "debian",
    "fedora": "fedora",
    "rhel": "fedora",
    "centos": "fedora",
    "alpine": "alpine",
}
_FAMILIES = {"debian": "Debian and Ubuntu", "fedora": "Fedora", "conda": "conda"}


class Packages(NamedTuple):
    """A program's package for each installer."""

    debian: str
    fedora: str
    conda: str


JAVA = Packages("default-jre-headless", "java-21-openjdk-headless", "openjdk")
_COMMANDS = Packages("apt install", "dnf install", "conda install -c conda-forge")


class PythonKind(NamedTuple):
    """The origin of a Python.

    Attributes:
        name: in a word or two.
        remedy: a sentence: how to get a shared libpython of exactly this build, or a build that has one.
    """

    name: str
    remedy: str


def install(packages: Packages) -> str:
    """Return the install command for this system; for an unknown system, one for each known one."""
    known = _system()
    if known not in _FAMILIES:
        each = (f"{_FAMILIES[name]}: {_command(packages, name)}" for name in _FAMILIES)
        return "; ".join(each)
    return _command(packages, known)


def _command(packages: Packages, system: str) -> str:
    return f"{getattr(_COMMANDS, system)} {getattr(packages, system)}"


def _system() -> str:
    """Return ``conda`` in a conda environment, else the distribution's family, or "" if unknown."""
    if _is_conda(Path(sys.prefix)) or _is_conda(Path(sys.base_prefix)):
        return "conda"
    return _family()


def _family() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    names = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return next((_BY_ID[name] for name in names if name in _BY_ID), "")


def is_musl() -> bool:
    """Return whether this Python was built for musl, whose loader has no separate link scopes."""
    return "musl" in str(sysconfig.get_config_var("HOST_GNU_TYPE")) or _family() == "alpine"


def python_kind() -> PythonKind:
    """Return the origin of the running Python."""
    prefix = Path(sys.base_prefix)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    full = platform.python_version()
    if is_musl():
        return PythonKind("for musl", "Use a system with glibc: musl's loader has no separate link scopes")
    if _is_conda(prefix):
        return PythonKind(
            "conda's", f"Take conda-forge's package, which has it: conda install -c conda-forge python={full}"
        )
    if _is_pyenvs(prefix):
        build = f"PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install --force {full}"
        return PythonKind("pyenv's", f"Build it anew with {build}, and make the virtual environment anew")
    if _is_standalone(prefix):
        return PythonKind(
            "python-build-standalone's, as uv installs it",
            f"Take a build that has lib/libpython{version}.so.1.0: uv python install --reinstall {full}",
        )
    if prefix == Path("/usr"):
        name = {"debian": f"libpython{version}", "fedora": f"python{version}-libs"}.get(_family(), "")
        if name:
            command = getattr(_COMMANDS, _family())
            return PythonKind("the distribution's", f"Install it: {command} {name}")
        return PythonKind("the distribution's", f"Install the distribution's package of libpython{version}")
    return PythonKind("its own build", "Build Python with ./configure --enable-shared")


def _is_conda(prefix: Path) -> bool:
    return (prefix / "conda-meta").is_dir()


def _is_pyenvs(prefix: Path) -> bool:
    root = os.environ.get("PYENV_ROOT")
    return "/.pyenv/versions/" in f"{prefix}/" or bool(
        root and prefix.is_relative_to(Path(root) / "versions")
    )


def _is_standalone(prefix: Path) -> bool:
    """Detect such builds by their configuration, regardless of their location.

    They are built in /install or /tools.
    """
    built_for = str(sysconfig.get_config_var("prefix"))
    tools = str(sysconfig.get_config_var("CC")) + str(sysconfig.get_config_var("CONFIG_ARGS"))
    return "/uv/python/" in f"{prefix}/" or built_for == "/install" or "/tools/" in tools
