"""Makes a bundle from the running Python."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.native import provision
from interpool.native.bundle import stdlib
from interpool.native.bundle.bundle_check import try_bundle
from interpool.native.bundle.bundled_files import Part, choose, files_of
from interpool.native.bundle.bytecode import pyc_of
from interpool.native.bundle.layout import Layout
from interpool.native.bundle.libraries import bring_needed, libraries
from interpool.native.bundle.licenses import copy_licenses
from interpool.native.errors import ProvisioningError
from interpool.native.pool.prepared_file import FILE_NAME, write_prepared
from interpool.native.provision.analysis import examine
from interpool.native.provision.copies import Copies
from interpool.native.provision.environment import current_environment
from interpool.native.provision.holding import Holder
from interpool.native.provision.store import copy_file, parents_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NATIVE = Path(__file__).resolve().parents[1]
# The parts of interpool.native that interpreters import, as listed in ``inside/__init__.py``.
_INSIDE = ("__init__.py", "errors.py", "movable.py", "directories.py", "archive", "inside", "upstream")


@dataclass(frozen=True)
class Made:
    """A finished bundle."""

    copies: int
    """The number of private copies."""
    size: int
    """The bytes of all files."""
    unlicensed: list[str]
    """Libraries of the system whose licenses were not found."""


def make_bundle(target: Path, slots: int, imports: Sequence[str] = ()) -> Made:
    """Write a directory from which a program without Python can start interpreters on any machine.

    It is made in a temporary directory, tried, and then moved to its place.

    Args:
        target: the directory; new, or empty.
        slots: the maximum number of interpreters of a program.
        imports: modules that programs will import, besides torch and numpy: the bundle includes their
            distributions with all requirements.

    Raises:
        ProvisioningError: ``target`` exists, a module is not installed, the trial failed, or the bundle
            cannot be written.
    """
    target = Path(os.path.abspath(target))
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        raise ProvisioningError(f"{target} is there already", "Remove it first, or name another directory")
    try:
        with parents_of(target), _draft(target) as layout:
            made = _fill(layout, slots, imports)
            os.rename(layout.root, target)
    except OSError as error:
        raise ProvisioningError(
            f"the bundle {target} cannot be written: {error.filename or ''} {error.strerror}"
        ) from error
    return made


@contextlib.contextmanager
def _draft(target: Path) -> Iterator[Layout]:
    """Yield a temporary layout beside ``target``, which is deleted at the end unless it was moved."""
    root = Path(os.path.realpath(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent)))
    try:
        yield Layout(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _fill(layout: Layout, slots: int, imports: Sequence[str]) -> Made:
    chosen = choose(imports)
    layout.libraries.mkdir(parents=True)
    stdlib.write_zip(layout.stdlib)
    stdlib.copy_extensions(layout.dynload)
    layout.licenses.mkdir()
    stdlib.copy_license(layout.licenses / "python.txt")
    sources: dict[Path, Path] = {}
    for part in [*chosen.parts, *_own_parts()]:
        final = layout.packages / part.name
        _copy(part.source, final)
        sources[final] = part.source
        if final.suffix == ".py":
            _compile(final, part)
    libpython = layout.libraries / provision.libpython_path().name
    for source, final in (
        (provision.libpython_path(), libpython),
        (provision.standby_path().with_name("libinterpool.so"), layout.root / "lib" / "libinterpool.so"),
    ):
        _copy(source, final)
        sources[final] = source
    brought = bring_needed(layout.root, sources, layout.libraries, layout.torch_libraries)
    licenses = copy_licenses(brought, layout.licenses)
    copies = _make_copies(layout, libpython, slots)
    _write_contents(layout, slots, chosen.versions, licenses)
    try_bundle(layout.root, imports)
    return Made(copies, _open_up(layout.root), [name for name, files in licenses.items() if not files])


def _own_parts() -> Iterator[Part]:
    """Yield interpool's own files: for interpreters, and its license."""
    yield Part(_NATIVE.with_name("__init__.py"), "interpool/__init__.py")
    for name in _INSIDE:
        place = _NATIVE / name
        for path in sorted(place.glob("*.py")) if place.is_dir() else [place]:
            yield Part(path, f"interpool/native/{path.relative_to(_NATIVE)}")
    for path in sorted(provision.interposer_path().parent.glob("*.so")):
        yield Part(path, f"interpool/native/{path.relative_to(_NATIVE)}")
    for part in files_of(importlib.metadata.distribution("interpool")):
        if ".dist-info/" in part.name:
            yield part


def _copy(source: Path, final: Path) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    copy_file(source, final)
    final.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def _compile(final: Path, part: Part) -> None:
    compiled = pyc_of(part.source, part.name)
    if compiled is not None:
        cached = final.parent / "__pycache__" / f"{final.stem}.{sys.implementation.cache_tag}.pyc"
        cached.parent.mkdir(exist_ok=True)
        cached.write_bytes(compiled)


def _make_copies(layout: Layout, libpython: Path, slots: int) -> int:
    """Make private copies of all libraries for all slots, and the file that names them.

    Returns their number.
    """
    env = replace(
        current_environment(),
        directory=layout.copies,
        libpython=libpython,
        torch_libraries=layout.torch_libraries,
        holder=Holder(layout.copies),
        relocatable=True,
    )
    maker = Copies(env)
    originals = []
    for path in map(str, libraries(layout.home)):
        with contextlib.suppress(ProvisioningError):  # damaged, or for another Python: not loadable
            examine(path, env)
            originals.append(path)
    numbers = range(1, slots + 1)
    libpythons = {slot: layout.relative(maker.libpython_copy(slot)) for slot in numbers}
    copies = {
        (layout.relative(path), slot): [layout.relative(copy) for copy in maker.private_copy(path, slot)]
        for path in originals
        for slot in numbers
    }
    maker.require_files()
    _leave_only_copies(layout.copies)
    part = layout.native / provision.interposer_path().relative_to(_NATIVE)
    named = {
        "executable": layout.executable,
        "home": layout.home,
        "torch_lib": layout.torch_libraries,
        "interposer": part,
        "slot_library": part.with_name("libinterpool_slot.so"),
        "loader": layout.native / "inside" / "loader.py",
        "notes": layout.notes,
    }
    write_prepared(
        layout.root / FILE_NAME,
        {name: layout.relative(path) for name, path in named.items()}
        | {"symbol_prefix": provision.SYMBOL_PREFIX},
        [layout.relative(entry) for entry in (layout.stdlib, layout.dynload, layout.packages)],
        libpythons,
        copies,
    )
    return len(copies)


def _leave_only_copies(folder: Path) -> None:
    """Remove files that only serve to make more copies."""
    shutil.rmtree(folder / "locks", ignore_errors=True)
    for path in [*folder.glob("*.map"), *folder.glob("files/*/record.json")]:
        path.unlink()
    for home in list(folder.glob("files/*")):
        if not any(home.iterdir()):
            home.rmdir()


def _write_contents(
    layout: Layout, slots: int, versions: dict[str, str], licenses: dict[str, list[str]]
) -> None:
    contents = {
        "interpool": importlib.metadata.version("interpool"),
        "python": sys.version,
        "interpreters": slots,
        "distributions": versions,
        "libraries_of_the_system": licenses,
    }
    (layout.root / "contents.json").write_text(json.dumps(contents, indent=2) + "\n")


def _open_up(root: Path) -> int:
    """Make all files readable for all users. Returns their size in bytes."""
    size = 0
    for folder, _folders, names in os.walk(root):
        os.chmod(folder, 0o755)
        for name in names:
            path = Path(folder) / name
            state = path.stat()
            path.chmod(0o755 if state.st_mode & 0o100 else 0o644)
            size += state.st_size
    return size
