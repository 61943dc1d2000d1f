"""What is said to people without a shared libpython, or without Java."""

from __future__ import annotations

import platform
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from interpool.native.provision import installers

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
FULL = platform.python_version()
DEBIAN = {"ID": "debian"}
FEDORA, ROCKY = {"ID": "fedora"}, {"ID": "rocky", "ID_LIKE": "rhel centos fedora"}
ALPINE, OTHER = {"ID": "alpine"}, {"ID": "void"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this Python another one."""

    def become(base: str | Path, release: dict[str, str], **variables: str) -> None:
        monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
        monkeypatch.setattr(sys, "base_prefix", str(base))
        monkeypatch.delenv("PYENV_ROOT", raising=False)
        monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
        monkeypatch.setattr(sysconfig, "get_config_var", variables.get)

    return become


@pytest.mark.parametrize(
    ("prefix", "release", "variables", "name", "remedy"),
    [
        ("/usr", DEBIAN, {}, "the distribution's", f"Install it: apt install libpython{VERSION}"),
        ("/usr", FEDORA, {}, "the distribution's", f"Install it: dnf install python{VERSION}-libs"),
        ("/usr", OTHER, {}, "the distribution's", "Install the distribution's package"),
        ("/usr/local", DEBIAN, {}, "its own build", "Build Python with ./configure --enable-shared"),
        (f"/home/a/.pyenv/versions/{FULL}", DEBIAN, {}, "pyenv's", "PYTHON_CONFIGURE_OPTS=--enable-shared"),
        ("/a/share/uv/python/cpython-x", DEBIAN, {}, "python-build-standalone's", "uv python install"),
        ("/opt/python", DEBIAN, {"prefix": "/install"}, "python-build-standalone's", "uv python install"),
        ("/usr/local", ALPINE, {}, "for musl", "Use a system with glibc"),
        ("/opt", DEBIAN, {"HOST_GNU_TYPE": "x86_64-linux-musl"}, "for musl", "Use a system with glibc"),
    ],
)  # fmt: skip
def test_a_python_is_recognised_and_what_brings_its_libpython_is_said(
    here: Any, prefix: str, release: dict[str, str], variables: dict[str, str], name: str, remedy: str
) -> None:
    here(prefix, release, **variables)
    kind = installers.python_kind()
    assert kind.name.startswith(name)
    assert remedy in kind.remedy


@pytest.mark.parametrize(
    ("release", "command"),
    [
        (DEBIAN, "apt install default-jre-headless"),
        (ROCKY, "dnf install java-21-openjdk-headless"),
    ],
)
def test_a_program_is_installed_by_the_systems_own_command(
    here: Any, release: dict[str, str], command: str
) -> None:
    here("/usr", release)
    assert installers.install(installers.JAVA) == command
