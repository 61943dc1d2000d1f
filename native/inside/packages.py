"""Opens hermetic archives inside a private interpreter.

The interpreter imports code from the archive and maps its weights. The process has one snapshot of the file,
and each interpreter one copy-on-write mapping of it. All interpreters share the weights' pages until one
writes to a page; then only the writer has the change.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any
from weakref import WeakValueDictionary

import torch

import _interpool
from interpool.native.archive.format import Manifest
from interpool.native.archive.importer import HermeticImporter
from interpool.native.archive.reader import Record, read_manifest, read_member, read_records
from interpool.native.errors import ArchiveError, StructureError
from interpool.native.inside import exits, operators, owners
from interpool.native.upstream.torch_private import PyTorchFileReader, use_up_storage_warning

use_up_storage_warning()


class _MappedReader(PyTorchFileReader):
    """Replaces torch's reader of archives; it maps weights instead of reading them.

    It is a subclass, because torch itself reads TorchScript modules and requires its own class.
    """

    def __init__(self, path: str, snapshot: int, shown: str) -> None:
        self._path = path
        self._snapshot = snapshot
        self._shown = shown
        self._mapping, self._size, fd = _interpool.map_archive(path, snapshot)
        # Open by descriptor, because the path may mean another file now. Do not duplicate the descriptor:
        # interpreters would share a file position.
        self._snapshot_file = f"/proc/self/fd/{fd}"
        with self.open_file() as file:
            self.records: dict[str, Record] = read_records(shown, file)
            self.manifest: Manifest | None = read_manifest(shown, file, self.records)
        super().__init__(self._snapshot_file)

    def open_file(self) -> IO[bytes]:
        """Open the snapshot, so that the checked bytes are those that are mapped and run."""
        return open(self._snapshot_file, "rb")

    def once(self, work: str, do: Callable[[], str]) -> str:
        """Run ``do`` in one interpreter for this snapshot, and return its result in all of them.

        The others wait. If ``do`` raises, or does not return within a minute, the next interpreter that asks
        runs it.

        Args:
            work: identifies the work.
            do: does the work; returns the result that the others get.
        """
        # Wait briefly each time, so that the wait can be interrupted.
        while (turn := _interpool.begin_once(self._mapping, work, 0.2)) is None:
            pass
        if isinstance(turn, str):
            return turn
        # If an interruption loses the turn before this line, the turn ends by itself.
        result = None
        try:
            result = do()
            return result
        finally:
            _interpool.end_once(turn, result)

    @contextmanager
    def map_again(self) -> Iterator[None]:
        """Read weights from a new mapping of the archive during the block; only the caller writes to it."""
        others = self._mapping
        self._mapping, _, _ = _interpool.map_archive(self._path, self._snapshot)
        try:
            yield
        finally:
            self._mapping = others

    def get_storage_from_record(self, name: str, numel: int, dtype: torch.dtype) -> torch.Tensor:
        record = self._record(name)
        wanted = numel * dtype.itemsize
        if not record.stored or record.size != wanted:
            raise StructureError(
                f"{self._shown}: the weights in {name} are "
                f"{'compressed' if not record.stored else f'{record.size} bytes long, not {wanted}'}; "
                "they must lie in the archive as torch.package wrote them.",
                "storage-size",
            )
        return _interpool.mapped_bytes(self._mapping, record.offset, record.size).view(dtype)

    def script_storages(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield names and bytes of the storages that TorchScript modules would read themselves."""
        if not any(name.startswith(".data/ts_code/") for name in self.records):
            return
        for name, record in self.records.items():
            if name.startswith(".data/") and name.endswith(".storage") and record.stored:
                storage = _interpool.mapped_bytes(self._mapping, record.offset, record.size)
                yield name.removeprefix(".data/"), storage

    def get_record(self, name: str) -> bytes:
        # Use our records, whose digests were checked: another zip reader may find other bytes under the name.
        record = self._record(name)
        with self.open_file() as file:
            return read_member(self._shown, file, record)

    def has_record(self, name: str) -> bool:
        return name in self.records

    def get_all_records(self) -> list[str]:
        return list(self.records)

    def _record(self, name: str) -> Record:
        record = self.records.get(name)
        if record is None:
            raise ArchiveError(f"{self._shown} holds no {name}.")
        return record


class HermeticPackage:
    """An archive opened in this interpreter.

    Args:
        path: the archive file.
        snapshot: the number of the process's snapshot of it; 0 for the one of the path.
        shown: its name for messages; default: the path.

    Raises:
        ArchiveError: its structure is not that of a hermetic archive.
        ImportError: it needs an extern module that is not installed here.
    """

    def __init__(self, path: str, snapshot: int = 0, shown: str = "") -> None:
        self.path = path
        self.shown = shown or path
        reader = _MappedReader(path, snapshot, self.shown)
        self.importer = HermeticImporter(reader, self.shown, reader.manifest)
        self.importer.place = (path, snapshot)
        _archives[self.importer.id()] = self.importer
        self.reader = reader
        self._objects: dict[tuple[str, str], Any] = {}

    def load_pickle(self, package: str, resource: str) -> Any:
        """Return the pickled object, which is loaded once per interpreter.

        Args:
            package: name of the Python package that contains the pickle.
            resource: name of the pickle in it.

        Raises:
            ArchiveError: the archive has no such pickle, or the pickle breaks a rule.
        """
        key = (package, resource)
        if key not in self._objects:
            self._require(package, resource)
            self._objects[key] = self.importer.load_pickle(package, resource)
        return self._objects[key]

    def load_binary(self, package: str, resource: str) -> bytes:
        """Return the bytes of a resource.

        Args:
            package: name of the Python package that contains the resource.
            resource: name of the resource in it.

        Raises:
            ArchiveError: the archive has no such resource.
        """
        self._require(package, resource)
        data: bytes = self.importer.load_binary(package, resource)
        return data

    def make(self, package: str, resource: str) -> Any:
        """Load a new object, with weights to which no other object has access.

        Args:
            package: name of the Python package that contains the pickle.
            resource: name of the pickle in it.

        Raises:
            ArchiveError: the archive has no such pickle, or the pickle breaks a rule.
        """
        self._require(package, resource)
        with self.reader.map_again():
            return self.importer.load_pickle(package, resource)

    def clear(self) -> None:
        """Forget all loaded objects."""
        self._objects.clear()

    def _require(self, package: str, resource: str) -> None:
        name = f"{package.replace('.', '/')}/{resource}"
        if not self.importer.zip_reader.has_record(name):
            raise ArchiveError(
                f"{self.shown} holds no {resource!r} in package {package!r}. "
                "`interpool inspect` lists what it holds."
            )


_packages: dict[str | int, HermeticPackage] = {}  # by path, or by the snapshot's number
_withdrawn: dict[int, list[HermeticPackage]] = {}
# All importers that are alive: code and objects of a closed archive may still refer to its importer.
_archives: WeakValueDictionary[str, HermeticImporter] = WeakValueDictionary()


def open_package(path: str | os.PathLike[str], snapshot: int = 0, shown: str = "") -> HermeticPackage:
    """Return the archive at ``path``; it is opened once per interpreter until ``close_package``.

    All interpreters see the same state of the file, even if it changes later.

    Args:
        path: of the archive.
        snapshot: the number of the process's snapshot; 0 for the first snapshot of ``path``.
        shown: its name in messages, from the first call; default: the path.

    Raises:
        ArchiveError: as for HermeticPackage.
        ImportError: as for HermeticPackage.
    """
    name = os.path.abspath(os.fspath(path))
    key = snapshot or name
    if key not in _packages:
        _packages[key] = HermeticPackage(name, snapshot, shown)
    return _packages[key]


def close_package(which: str | int) -> None:
    """Close the archive with that path or snapshot number.

    Its memory is freed with the last object that uses it.
    """
    key = os.path.abspath(which) if isinstance(which, str) else which
    if key in _packages:
        _close([_packages.pop(key)])


def _close(packages: list[HermeticPackage]) -> None:
    """Close the packages, remove them from the list, and free them.

    The caller must have no other reference to them.
    """
    if not packages:
        return
    while packages:
        package = packages.pop()
        exits.call(package.importer.id())
        operators.release(package.importer.id())
        package.importer.close()
        package.clear()
    del package
    gc.collect()  # a package's importer and its modules refer to each other


def withdraw_package(snapshot: int) -> None:
    """Remove an unused archive from the cache, so that the next ``open_package`` opens it again."""
    package = _packages.pop(snapshot, None)
    if package is not None:
        _withdrawn.setdefault(snapshot, []).append(package)


def end_withdrawal(snapshot: int, opened_again: bool) -> None:
    """Close a withdrawn archive, or put it back into the cache.

    Args:
        snapshot: its number.
        opened_again: whether it was opened again before ``withdraw_package``, so that it may be in use.
    """
    withdrawn = _withdrawn.pop(snapshot, [])
    if opened_again:
        for package in withdrawn:
            # If the archive was opened again since, only the old users keep this one.
            _packages.setdefault(snapshot, package)
    else:
        _close(withdrawn)


def close_all() -> None:
    """Close every archive; the next use opens it again."""
    for which in list(_packages):
        close_package(which)


def load_object(path: str, package: str, resource: str, snapshot: int = 0) -> Any:
    """Return ``HermeticPackage.load_pickle`` of the archive at ``path``.

    Args:
        path: the archive file.
        package: name of the Python package that contains the pickle.
        resource: name of the pickle in it.
        snapshot: the number of the process's snapshot of the archive; 0 for the one of the path.

    Raises:
        ArchiveError: as for ``open_package`` and ``HermeticPackage.load_pickle``.
        ImportError: as for ``open_package``.
    """
    return open_package(path, snapshot).load_pickle(package, resource)


def make_object(path: str, package: str, resource: str, snapshot: int = 0) -> Any:
    """Return ``HermeticPackage.make`` of the archive at ``path``.

    Args:
        path: as in ``load_object``.
        package: as in ``load_object``.
        resource: as in ``load_object``.
        snapshot: as in ``load_object``.

    Raises:
        ArchiveError: as for ``open_package`` and ``HermeticPackage.make``.
        ImportError: as for ``open_package``.
    """
    return open_package(path, snapshot).make(package, resource)


def archive_of(module: str) -> tuple[str, int] | None:
    """Return path and snapshot number of the archive that contains a module.

    Args:
        module: its name in this interpreter.
    """
    importer = _archives.get(module.partition(".")[0])
    return None if importer is None else importer.place


def _owner(globals_: dict[str, Any]) -> owners.Owner | None:
    name = str(globals_.get("__name__")).partition(".")[0]
    importer = _archives.get(name)
    return None if importer is None else owners.Owner(name, importer.place[0])


owners.find_owners(_owner)


def load_bytes(path: str, package: str, resource: str, snapshot: int = 0) -> bytes:
    """Return ``HermeticPackage.load_binary`` of the archive at ``path``.

    Args:
        path: as in ``load_object``.
        package: name of the Python package that contains the resource.
        resource: name of the resource in it.
        snapshot: as in ``load_object``.

    Raises:
        ArchiveError: as for ``open_package`` and ``HermeticPackage.load_binary``.
        ImportError: as for ``open_package``.
    """
    return open_package(path, snapshot).load_binary(package, resource)
