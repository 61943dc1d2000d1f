"""Hermetic archives inside a private interpreter.

Code is imported from the archive and weights are mapped from it: one snapshot of
the file per process, one copy-on-write mapping per interpreter. All share the
weights' pages until one writes to them, and a write is seen by its writer only.
"""

from __future__ import annotations

import gc
import os
import warnings
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
from interpool.native.upstream.torch_private import TYPED_STORAGE_WARNING, PyTorchFileReader

# torch.package causes it, and nobody who serves a model can change that.
warnings.filterwarnings("ignore", TYPED_STORAGE_WARNING, UserWarning, r"torch\.package")


class _MappedReader(PyTorchFileReader):
    """torch's reader, except for weights, which are mapped.

    TorchScript modules in an archive are read by torch itself, which asks for its own reader.
    """

    def __init__(self, path: str, snapshot: int, shown: str) -> None:
        self._path = path
        self._snapshot = snapshot
        self._shown = shown
        self._mapping, self._size, fd = _interpool.map_archive(path, snapshot)
        # By descriptor: the path may mean another file by now. Opened again rather than
        # duplicated: all interpreters would share one position in the file.
        self._snapshot_file = f"/proc/self/fd/{fd}"
        with self.open_file() as file:
            self.records: dict[str, Record] = read_records(shown, file)
            self.manifest: Manifest | None = read_manifest(shown, file, self.records)
        super().__init__(self._snapshot_file)

    def open_file(self) -> IO[bytes]:
        """Open the bytes that are mapped and run, so that these are the ones that are checked."""
        return open(self._snapshot_file, "rb")

    def once(self, work: str, do: Callable[[], str]) -> str:
        """What ``do`` returned in the one interpreter that did this work for this snapshot.

        The others wait. If it raises, or does not return for a minute, the next interpreter that asks
        does the work.
        """
        # In short waits: an interpreter that waits can be interrupted.
        while (turn := _interpool.begin_once(self._mapping, work, 0.2)) is None:
            pass
        if isinstance(turn, str):
            return turn
        # A turn that an interruption loses before this ends by itself.
        result = None
        try:
            result = do()
            return result
        finally:
            _interpool.end_once(turn, result)

    @contextmanager
    def map_again(self) -> Iterator[None]:
        """Meanwhile, weights are read from another mapping of the archive: nobody else writes to them."""
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
        """Names and bytes of what TorchScript modules would read for themselves, if there are any."""
        if not any(name.startswith(".data/ts_code/") for name in self.records):
            return
        for name, record in self.records.items():
            if name.startswith(".data/") and name.endswith(".storage") and record.stored:
                storage = _interpool.mapped_bytes(self._mapping, record.offset, record.size)
                yield name.removeprefix(".data/"), storage

    def get_record(self, name: str) -> bytes:
        # Through our records, as digests are checked: another reader of the same zip may
        # be led to find other bytes under the name.
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
        """The pickled object; made once per interpreter, then the same each time."""
        key = (package, resource)
        if key not in self._objects:
            self._require(package, resource)
            self._objects[key] = self.importer.load_pickle(package, resource)
        return self._objects[key]

    def load_binary(self, package: str, resource: str) -> bytes:
        """A resource's bytes."""
        self._require(package, resource)
        data: bytes = self.importer.load_binary(package, resource)
        return data

    def make(self, package: str, resource: str) -> Any:
        """A new object for this caller alone, with weights that nobody else writes to."""
        self._require(package, resource)
        with self.reader.map_again():
            return self.importer.load_pickle(package, resource)

    def clear(self) -> None:
        """Forget the objects made so far."""
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
# All whose importers live, as code and objects from closed ones may.
_archives: WeakValueDictionary[str, HermeticImporter] = WeakValueDictionary()


def open_package(path: str | os.PathLike[str], snapshot: int = 0, shown: str = "") -> HermeticPackage:
    """The archive at ``path``, opened once per interpreter until ``close_package``.

    All interpreters see the same state of the file, whatever becomes of it meanwhile:
    the process's snapshot of that number, or the first one that ``path`` meant.
    Messages call it ``shown``, as given by who opens it first; default: the path.
    """
    name = os.path.abspath(os.fspath(path))
    key = snapshot or name
    if key not in _packages:
        _packages[key] = HermeticPackage(name, snapshot, shown)
    return _packages[key]


def close_package(which: str | int) -> None:
    """Forget the archive of that path, or snapshot number.

    Its memory goes when its last object does.
    """
    key = os.path.abspath(which) if isinstance(which, str) else which
    if key in _packages:
        _close([_packages.pop(key)])


def _close(packages: list[HermeticPackage]) -> None:
    """Close and free them: who calls holds none of them but in this list."""
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
    """Take the archive of that number away, which nobody needs any more: who opens it now gets another."""
    package = _packages.pop(snapshot, None)
    if package is not None:
        _withdrawn.setdefault(snapshot, []).append(package)


def settle_package(snapshot: int, opened_again: bool) -> None:
    """Close what was withdrawn, or have it back.

    Args:
        snapshot: its number.
        opened_again: whether somebody had opened it again before it was withdrawn, and may have got it.
    """
    withdrawn = _withdrawn.pop(snapshot, [])
    if opened_again:
        for package in withdrawn:
            # Where another is there by now, this one is its users' alone.
            _packages.setdefault(snapshot, package)
    else:
        _close(withdrawn)


def close_all() -> None:
    """Forget every archive: what is still wanted is opened again."""
    for which in list(_packages):
        close_package(which)


def load_object(path: str, package: str, resource: str, snapshot: int = 0) -> Any:
    """The pickled object; made once per interpreter, then the same each time."""
    return open_package(path, snapshot).load_pickle(package, resource)


def make_object(path: str, package: str, resource: str, snapshot: int = 0) -> Any:
    """A new object for this caller alone."""
    return open_package(path, snapshot).make(package, resource)


def archive_of(module: str) -> tuple[str, int] | None:
    """Path and snapshot number of the archive that a module, as it is called here, came from."""
    importer = _archives.get(module.partition(".")[0])
    return None if importer is None else importer.place


def _owner(globals_: dict[str, Any]) -> owners.Owner | None:
    name = str(globals_.get("__name__")).partition(".")[0]
    importer = _archives.get(name)
    return None if importer is None else owners.Owner(name, importer.place[0])


owners.find_owners(_owner)


def load_bytes(path: str, package: str, resource: str, snapshot: int = 0) -> bytes:
    """A resource's bytes."""
    return open_package(path, snapshot).load_binary(package, resource)
