"""Templates and slot copies: found in the cache, or made there once.

Layout of an environment's directory::

    environment.json                 what the directory's name was made of
    names.map                        the renamed symbols, for patchelf
    files/<key>/record.json          the verdict on one original file
    files/<key>/<basename>           its patched template, if it is private
    slots/<slot>/<key>/<basename>    a slot's own copy

``<key>`` is made of an original's real path, size and modification time.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from interpool.native.errors import ProvisioningError
from interpool.native.provision.analysis import TORCH_PYTHON, Facts, examine
from interpool.native.provision.environment import Environment
from interpool.native.provision.patch import MARKER, Change, make_template
from interpool.native.provision.store import copy_file, locked, new_file, private_directory

_LAST_SLOT = 9999


@dataclass(frozen=True)
class Record:
    """The verdict on one original file.

    Attributes:
        path: the original's real path.
        private: whether it needs a copy per slot.
        needs: objects found through its search path, and whether each was private.
        soname: the template's SONAME, with the marker.
        marks: file offsets of the slot marker in the template, in bytes.
        size: the template's size in bytes.
    """

    path: str
    private: bool
    needs: dict[str, bool]
    soname: str = ""
    marks: tuple[int, ...] = ()
    size: int = 0


class Copies:
    """The templates and slot copies of one environment; safe for threads and processes."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._libpython = str(env.libpython)
        self._records: dict[str, Record] = {}
        # One build at a time in this process; other processes are kept out by file locks.
        self._building = threading.RLock()

    def private_copy(self, path: str, slot: int) -> list[str]:
        """See ``interpool.native.provision.private_copy``."""
        if not 0 <= slot <= _LAST_SLOT:
            raise ProvisioningError(f"slot {slot} is out of range (0 to {_LAST_SLOT})")
        wanted: dict[str, Record] = {}
        record = self._collect(path, wanted, ())
        if not record.private:
            return [path]
        copies = [self.libpython_copy(slot)]
        for key, needed in wanted.items():
            if needed.path != self._libpython:
                copies.append(self._slot_copy(key, needed, slot))
        return copies

    def libpython_copy(self, slot: int) -> str:
        """The slot's libpython, made if need be."""
        key, record = self._judge(self._libpython, ())
        return self._slot_copy(key, record, slot)

    def _collect(self, path: str, wanted: dict[str, Record], above: tuple[str, ...]) -> Record:
        """Put ``path``'s record, after those it needs, into ``wanted`` if it is private."""
        key, record = self._judge(path, above)
        if record.private and key not in wanted:
            for needed, private in record.needs.items():
                if private and needed not in above:
                    self._collect(needed, wanted, (*above, path))
            wanted[key] = record
        return record

    def _judge(self, path: str, above: tuple[str, ...]) -> tuple[str, Record]:
        """The file's key and a record that still holds."""
        real = os.path.realpath(path)
        try:
            stat = os.stat(real)
        except OSError as error:
            raise ProvisioningError(f"cannot read {path}: {error.strerror}") from error
        key = f"{_path_hash(real)}-{stat.st_size:x}-{stat.st_mtime_ns:x}"
        record = self._records.get(key) or self._load(key)
        if record is None or not self._holds(record, (*above, path)):
            record = self._build(key, path, real, (*above, path))
        self._records[key] = record
        return key, record

    def _holds(self, record: Record, above: tuple[str, ...]) -> bool:
        for path, private in record.needs.items():
            if path in above:
                continue
            if not os.path.exists(path) or self._judge(path, above)[1].private != private:
                return False
        return True

    def _load(self, key: str) -> Record | None:
        try:
            text = (self._env.directory / "files" / key / "record.json").read_text()
        except OSError:
            return None
        return Record(**json.loads(text))

    def _build(self, key: str, path: str, real: str, above: tuple[str, ...]) -> Record:
        home = private_directory(self._env.directory / "files" / key)
        facts = examine(path, self._env)
        judged = {found: self._judge(found, above)[1] for found in facts.found.values() if found not in above}
        is_libpython = real == self._libpython
        private = is_libpython or facts.uses_python or bool(facts.libpython)
        private = private or any(record.private for record in judged.values())
        needs = {found: record.private for found, record in judged.items()}
        with self._building, locked(home):
            made = self._load(key)
            if made is not None and made.needs == needs:
                return made
            record = Record(real, private, needs)
            if private:
                record = self._template(home, record, facts, judged)
            with new_file(home / "record.json") as draft:
                draft.write_text(json.dumps(asdict(record)))
        return record

    def _template(self, home: Path, record: Record, facts: Facts, judged: dict[str, Record]) -> Record:
        name = os.path.basename(record.path)
        replace = {
            needed: judged[found].soname
            for needed, found in facts.found.items()
            if found in judged and judged[found].private
        }
        for_torch = name == TORCH_PYTHON or TORCH_PYTHON in facts.needed
        change = Change(
            soname=_soname(record.path),
            libpython=None if record.path == self._libpython else _soname(self._libpython),
            replace=replace,
            interposer=self._env.has_interposer and (facts.interposed or for_torch),
        )
        with new_file(home / name) as draft:
            marks = make_template(record.path, draft, facts, change, self._env)
            size = draft.stat().st_size
        return Record(record.path, True, record.needs, change.soname, tuple(marks), size)

    def _slot_copy(self, key: str, record: Record, slot: int) -> str:
        name = os.path.basename(record.path)
        home = f"{self._env.directory}/slots/{slot:04}/{key}"
        final = f"{home}/{name}"
        try:
            if os.stat(final).st_size == record.size:
                return final
        except OSError:
            pass
        private_directory(Path(home))
        template = self._env.directory / "files" / key / name
        with new_file(Path(final)) as draft:
            copy_file(template, draft)
            mark = MARKER[:-4] + b"%04d" % slot
            with open(draft, "r+b") as file:
                for offset in record.marks:
                    os.pwrite(file.fileno(), mark, offset)
        return final


def _path_hash(real: str) -> str:
    return hashlib.sha256(os.fsencode(real)).hexdigest()[:8]


def _soname(real: str) -> str:
    return f"{MARKER.decode()}-{_path_hash(real)}-{os.path.basename(real)}"
