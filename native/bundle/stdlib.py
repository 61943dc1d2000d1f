"""Copies the standard library into a bundle: a zip of compiled modules, and the extension modules."""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import sysconfig
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.native.bundle.bytecode import make_pyc, pyc_of
from interpool.native.errors import ProvisioningError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Programs for people, tools for environments, and folders of other libraries.
_LEFT_OUT = frozenset(
    {"dist-packages", "ensurepip", "idlelib", "lib-dynload", "site-packages", "tkinter", "turtledemo", "venv"}
)
_TESTS = frozenset({"test", "tests"})
_NO_DATA = frozenset({".a", ".bat", ".exe", ".o", ".pyc", ".so", ".whl"})
# Modules of tests, and those that need libraries under the GPL or a window system.
_NO_EXTENSIONS = ("_ctypes_test", "_gdbm", "_test", "_tkinter", "_xxtest", "readline", "xxlimited")
_PREFIX = "<prefix>"


def write_zip(target: Path) -> None:
    """Write all Python modules and data files.

    Members are stored: decompression needs zlib, an extension module that cannot be imported yet.
    """
    source = Path(sysconfig.get_path("stdlib"))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for path in _files(source):
            name = str(path.relative_to(source))
            if path.suffix != ".py":
                _add(archive, name, path.read_bytes())
            elif (compiled := _compiled(path, f"{target.name}/{name}")) is not None:
                _add(archive, f"{name}c", compiled)


def copy_extensions(target: Path) -> None:
    """Copy the extension modules."""
    target.mkdir(parents=True)
    for path in sorted(Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so")):
        module, _, suffix = path.name.partition(".")
        ours = f".{suffix}" in EXTENSION_SUFFIXES  # Debian's debug build is in the same folder
        if ours and not module.startswith(_NO_EXTENSIONS):
            shutil.copyfile(path, target / path.name)


def copy_license(target: Path) -> None:
    """Copy Python's license.

    Raises:
        ProvisioningError: it was not found.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    places = [
        Path(sysconfig.get_path("stdlib")) / "LICENSE.txt",
        Path(sys.base_prefix) / "LICENSE.txt",
        Path(sys.base_prefix) / "LICENSE",
        Path(f"/usr/share/doc/python{version}/copyright"),
    ]
    for place in places:
        if place.is_file():
            shutil.copyfile(place, target)
            return
    raise ProvisioningError(
        f"the license of this Python is in none of {', '.join(map(str, places))}",
        "A bundle is not made without it: put it there",
    )


def _files(source: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(source):
        at_top = Path(folder) == source
        folders[:] = sorted(
            each
            for each in folders
            if each != "__pycache__"
            and each not in _TESTS
            and not (at_top and (each in _LEFT_OUT or each.startswith("config-")))
        )
        for name in sorted(names):
            if Path(name).suffix not in _NO_DATA and not (at_top and name == "LICENSE.txt"):
                yield Path(folder) / name


def _compiled(path: Path, name: str) -> bytes | None:
    if not path.name.startswith("_sysconfigdata_"):
        return pyc_of(path, name)
    # The configuration of this Python; its paths are adapted to the bundle at run time.
    variables = {
        key: value.replace(sys.base_prefix, _PREFIX) if isinstance(value, str) else value
        for key, value in runpy.run_path(str(path))["build_time_vars"].items()
    }
    source = (
        "import sys\n"
        f"build_time_vars = {variables!r}\n"
        "for _key, _value in build_time_vars.items():\n"
        "    if isinstance(_value, str):\n"
        f"        build_time_vars[_key] = _value.replace({_PREFIX!r}, sys.prefix)\n"
    )
    return make_pyc(compile(source, name, "exec"), source.encode(), name)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    member.external_attr = 0o644 << 16
    archive.writestr(member, content)
