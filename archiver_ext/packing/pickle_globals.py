"""What the pickles of an archive take from modules outside of it."""

from __future__ import annotations

import contextlib
import io
import pickle
from typing import TYPE_CHECKING, Any, NoReturn

from interpool.native.archive.pickle_policy import current_name, is_external
from interpool.native.archive.reader import read_member, read_records
from interpool.native.upstream.cpython_private import PurePythonUnpickler

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path


def pickle_globals(archive: Path, external: Collection[str]) -> list[str]:
    """The globals of all ``.pkl`` members that come from external modules, for the manifest.

    Runs nothing of the pickles: they are followed with stand-ins for all objects, as
    ``interpool.native.archive.unpickler`` will follow them when they are loaded.

    Args:
        archive: a complete torch.package.
        external: the modules that it takes from the server; what is below one of them is
            taken from there too.

    Returns:
        ``module:name``, sorted. What is no pickle, in spite of its name, adds nothing.

    Raises:
        StructureError: the archive is damaged.
    """
    found: set[str] = set()
    with archive.open("rb") as file:
        for name, record in read_records(str(archive), file).items():
            if name.endswith(".pkl"):
                found |= globals_of(read_member(str(archive), file, record))
    return sorted(name for name in found if is_external(name.partition(":")[0], external))


def globals_of(data: bytes) -> set[str]:
    """``module:name`` of every global that a pickle names; none if it is damaged."""
    walker = _Walker(io.BytesIO(data))
    # A data file of the user's may have that ending and be anything.
    with contextlib.suppress(Exception):
        walker.load()
        return walker.found
    return set()


class _StandIn:
    """Whatever a pickle makes."""

    def append(self, _part: object) -> None: ...

    def extend(self, _parts: object) -> None: ...

    def add(self, _part: object) -> None: ...

    def __setitem__(self, _key: object, _value: object) -> None: ...


class _Walker(PurePythonUnpickler):  # type: ignore[misc]
    """Follows a pickle's instructions without importing or calling anything."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.found: set[str] = set()

    def find_class(self, module: str, name: str) -> _StandIn:
        self.found.add(":".join(current_name(module, name, self.proto)))
        return _StandIn()

    def persistent_load(self, _saved: object) -> _StandIn:
        return _StandIn()

    def get_extension(self, _code: int) -> NoReturn:
        raise pickle.UnpicklingError("torch.package uses no extension codes")

    def _instantiate(self, _klass: object, _args: object) -> None:
        self.append(_StandIn())

    def _make(self, operands: int) -> None:
        del self.stack[-operands:]
        self.append(_StandIn())

    def _build(self) -> None:
        self.stack.pop()


_dispatch: dict[int, Callable[[Any], None]] = {
    **_Walker.dispatch,
    pickle.REDUCE[0]: lambda walker: walker._make(2),
    pickle.NEWOBJ[0]: lambda walker: walker._make(2),
    pickle.NEWOBJ_EX[0]: lambda walker: walker._make(3),
    pickle.BUILD[0]: _Walker._build,
}
_Walker.dispatch = _dispatch
