"""Templates and slot copies: found in the cache, or made there once.

Layout of an environment's directory::

    environment.json                 the facts from which the directory's name is computed
    names.map                        the renamed symbols, for patchelf; for libpython: names-libpython.map
    imports/                         notes about imports of torch: inside/import_notes.py
    locks/                           locks for making files; locks/held: holding.py
    files/<key>/record.json          the verdict on one original file
    files/<key>/<basename>           its patched template, if it is private
    files/<key>/host/<basename>      the copy for a host that loads it after the pool
    slots/<slot>/<key>-<variant>/<basename>   a slot's own copy
    prepared/                        files that name copies: sweeping.py

If a file cannot be written, this process keeps it in memory (``store.file_in_memory``), and tries the cache
again for the next one.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.native.errors import ProvisioningError
from interpool.native.provision.analysis import TORCH_PYTHON, Facts, examine, means_libpython
from interpool.native.provision.holding import file_byte, slot_byte
from interpool.native.provision.patch import Change, make_template
from interpool.native.provision.records import Record, file_key, load_record, marker, template_soname
from interpool.native.provision.store import (
    copy_file,
    file_in_memory,
    locked,
    new_file,
    private_directory,
    unusable,
)
from interpool.native.provision.sweeping import sweep_orphans
from interpool.native.provision.system_libraries import system_library
from interpool.native.provision.unshared import relies_on_one_gil

if TYPE_CHECKING:
    from interpool.native.provision.environment import Environment

_LAST_SLOT = 9999
_QUIET_S = 600.0  # minimum between two log messages about failed writes

logger = logging.getLogger("interpool.provision")


@dataclass(frozen=True)
class _Judged:
    """A record, the state of its file, and its template if it is private."""

    stamp: tuple[int, int, int, int]
    key: str
    record: Record
    template: str

    @property
    def is_whole(self) -> bool:
        """Whether its template still exists."""
        return not self.record.private or _has_size(self.template, self.record.size)


class Copies:
    """The templates and slot copies of one environment.

    Safe for concurrent threads and processes: entries are replaced as a whole, and files are made under a
    file lock.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._libpython = str(env.libpython)
        self._known: dict[str, _Judged] = {}
        self._orphans_are_gone = False
        # Paths of slots' copies by their paths in the cache. The dynamic linker identifies a loaded copy by
        # its path, so a path must not change.
        self._given: dict[str, str] = {}
        self._held_for_host: dict[Path, str] = {}  # the same for the host's copies in memory
        self._holding = threading.Lock()
        self._failed_at = -math.inf

    def private_copy(self, path: str, slot: int) -> list[str]:
        """Return the files to load; see ``interpool.native.provision.private_copy``.

        Args:
            path: a library's path, or its name for the dynamic linker.
            slot: the slot's number, 0 to 9999.

        Raises:
            ProvisioningError: a file cannot be read, or a copy cannot be made.
        """
        is_name = "/" not in path
        if means_libpython(os.path.basename(path)) and (is_name or os.path.exists(path)):
            # Any file of libpython: a second one would be a Python that was never initialized.
            return [self.libpython_copy(slot)]
        if is_name:
            found = system_library(path)
            if found is None:
                return [path]  # dlopen loads it, or fails as usual
            copies = self.private_copy(found, slot)
            return [path] if copies == [found] else copies
        seen: dict[str, _Judged | None] = {}
        if not self._judge(path, seen).record.private:
            return [path]
        wanted: dict[str, _Judged] = {}
        self._add(self._libpython, seen, wanted)
        self._add(path, seen, wanted)
        return [self._slot_copy(judged, slot) for judged in wanted.values()]

    def libpython_copy(self, slot: int) -> str:
        """Return the slot's libpython.

        Raises:
            ProvisioningError: libpython cannot be read, or the copy cannot be made.
        """
        return self._slot_copy(self._judge(self._libpython, {}), slot)

    def host_copy(self, path: str) -> str:
        """Return a copy for the host; see ``interpool.native.provision.host_copy``.

        Raises:
            ProvisioningError: ``path`` cannot be read, or the copy cannot be made.
        """
        facts = examine(path, self._env)
        key = file_key(os.path.realpath(path), os.stat(path))
        final = self._hold_file(key) / "host" / os.path.basename(path)
        with self._holding:
            held = self._held_for_host.get(final)
            if held is not None:
                return held
            if not final.exists():
                change = Change(os.path.basename(path), None, {}, interposer=True, rename=False)
                try:
                    with locked(self._env.directory, key[:2]):
                        private_directory(final.parent.parent)
                        private_directory(final.parent)
                        with new_file(final) as draft:
                            make_template(path, draft, facts, change, self._env)
                except ProvisioningError as error:
                    draft = file_in_memory(final.name)
                    make_template(path, draft, facts, change, self._env)
                    held = self._held_for_host[final] = str(draft)
                    self._cannot_write(error)
                    return held
        return str(final)

    def require_files(self) -> None:
        """Check that other processes can use the slots' copies.

        Raises:
            ProvisioningError: copies are in memory, where other processes cannot use them.
        """
        if any(path != final for final, path in self._given.items()):
            raise ProvisioningError(
                f"the cache directory {self._env.directory} could not be written: copies are in memory"
            )

    def _hold_file(self, key: str) -> Path:
        """Return the directory for an original's files; from now on no process removes it."""
        home = self._env.directory / "files" / key
        self._env.holder.hold(file_byte(key))
        return home

    def _add(self, path: str, seen: dict[str, _Judged | None], wanted: dict[str, _Judged]) -> None:
        """Add ``path`` to ``wanted`` after all private objects that it needs."""
        judged = seen.get(path) or self._judge(path, seen)
        if judged.key in wanted:
            return
        for needed, private in judged.record.needs.items():
            if private:
                self._add(needed, seen, wanted)
        wanted[judged.key] = judged

    def _judge(self, path: str, seen: dict[str, _Judged | None]) -> _Judged:
        """Return the current verdict on ``path``. ``seen`` collects the verdicts of this call."""
        done = seen.get(path)
        if done is not None:
            return done
        seen[path] = None  # in progress: objects that need each other must not recurse
        try:
            stat = os.stat(path)
        except OSError as error:
            raise ProvisioningError(f"cannot read {path}: {error.strerror}") from error
        stamp = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        judged = self._known.get(path)
        if judged is None or judged.stamp != stamp:
            real = os.path.realpath(path)
            key = file_key(real, stat)
            home = self._hold_file(key)
            record = _load_whole(home)
            judged = _Judged(stamp, key, record, _template_in(home, record.path)) if record else None
        if judged is None or not judged.is_whole or not self._holds(judged.record, seen):
            judged = self._build(path, stat, seen)
        seen[path] = self._known[path] = judged
        return judged

    def _holds(self, record: Record, seen: dict[str, _Judged | None]) -> bool:
        """Return whether the needed objects exist, each private or shared as recorded."""
        for path, private in record.needs.items():
            if path in seen and seen[path] is None:
                continue
            if not os.path.exists(path) or self._judge(path, seen).record.private != private:
                return False
        return True

    def _build(self, path: str, stat: os.stat_result, seen: dict[str, _Judged | None]) -> _Judged:
        facts = examine(path, self._env)
        real = os.path.realpath(path)
        resolved = self._resolve(facts, seen)
        needs = dict(resolved.values())
        private = (
            real == self._libpython
            or facts.uses_python
            or bool(facts.libpython)
            or any(needs.values())
            or relies_on_one_gil(path)
        )
        record = Record(real, private, needs)
        key = file_key(real, stat)
        home = self._env.directory / "files" / key
        if not self._orphans_are_gone:
            self._orphans_are_gone = True
            sweep_orphans(self._env.directory)
        template = _template_in(home, real)
        made: Record | None
        try:
            with locked(self._env.directory, key[:2]):
                private_directory(home)
                made = _load_whole(home)
                if made is None or made.needs != needs:
                    made = record
                    if private:
                        with new_file(Path(template)) as draft:
                            made = self._template(draft, record, facts, resolved)
                    made.save(home)
        except ProvisioningError as error:
            made = record
            if private:
                draft = file_in_memory(os.path.basename(real))
                made = self._template(draft, record, facts, resolved)
                template = str(draft)
            self._cannot_write(error)
        stamp = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        return _Judged(stamp, key, made, template)

    def _resolve(self, facts: Facts, seen: dict[str, _Judged | None]) -> dict[str, tuple[str, bool]]:
        """Return the file of each needed name, and whether it is private.

        Shared system libraries are omitted: they are many, and change only with their system.
        """
        resolved: dict[str, tuple[str, bool]] = {}
        for name in facts.needed:
            if name in facts.libpython:
                continue
            found = facts.found.get(name)
            path = found or system_library(name)
            if path is None or (path in seen and seen[path] is None):
                continue
            private = self._judge(path, seen).record.private
            if found or private:
                resolved[name] = (path, private)
        return resolved

    def _template(
        self, draft: Path, record: Record, facts: Facts, resolved: dict[str, tuple[str, bool]]
    ) -> Record:
        is_libpython = record.path == self._libpython
        name = os.path.basename(record.path)
        exchange = {
            needed: template_soname(os.path.realpath(found))
            for needed, (found, private) in resolved.items()
            if private
        }
        for_torch = name == TORCH_PYTHON or TORCH_PYTHON in facts.needed
        change = Change(
            soname=template_soname(record.path),
            libpython=None if is_libpython else template_soname(self._libpython),
            exchange=exchange,
            interposer=self._env.has_interposer and (facts.interposed or for_torch),
        )
        marks = make_template(record.path, draft, facts, change, self._env)
        return replace(record, marks=tuple(marks), size=draft.stat().st_size)

    def _slot_copy(self, judged: _Judged, slot: int) -> str:
        if not 0 <= slot <= _LAST_SLOT:
            raise ProvisioningError(f"slot {slot} is out of range (0 to {_LAST_SLOT})")
        key, record = judged.key, judged.record
        name = os.path.basename(record.path)
        self._env.holder.hold(slot_byte(slot))
        final = f"{self._env.directory}/slots/{slot:04}/{key}-{record.variant}/{name}"
        given = self._given.get(final)
        if given not in (None, final):
            return str(given)
        if not _has_size(final, record.size):
            try:
                with locked(self._env.directory, key[:2]):
                    if not _has_size(final, record.size):
                        private_directory(Path(final).parent)
                        with new_file(Path(final)) as draft:
                            _copy_for_slot(judged, slot, draft)
            except ProvisioningError as error:
                return self._copy_in_memory(judged, slot, final, error)
        self._given[final] = final
        return final

    def _copy_in_memory(self, judged: _Judged, slot: int, final: str, error: ProvisioningError) -> str:
        with self._holding:
            given = self._given.get(final)
            if given is None:
                held = file_in_memory(os.path.basename(final))
                try:
                    _copy_for_slot(judged, slot, held)
                except OSError as reason:
                    raise unusable(Path(judged.template).parent, reason) from error
                given = self._given[final] = str(held)
                self._cannot_write(error)
        return given

    def _cannot_write(self, error: ProvisioningError) -> None:
        now = time.monotonic()
        if now - self._failed_at > _QUIET_S:  # small files may still fit on a full disk
            logger.error("%s. Until then, private copies are kept in memory: 20 MB per interpreter", error)
        self._failed_at = now


def _copy_for_slot(judged: _Judged, slot: int, target: Path) -> None:
    copy_file(Path(judged.template), target)
    with open(target, "r+b") as file:
        for offset in judged.record.marks:
            os.pwrite(file.fileno(), marker(slot), offset)


def _template_in(home: Path, real: str) -> str:
    return f"{home}/{os.path.basename(real)}"


def _load_whole(home: Path) -> Record | None:
    """Return the record in ``home``, unless its template is missing or truncated."""
    record = load_record(home)
    if record is None or not record.private:
        return record
    return record if _has_size(_template_in(home, record.path), record.size) else None


def _has_size(path: str, size: int) -> bool:
    try:
        return os.stat(path).st_size == size
    except OSError:
        return False
