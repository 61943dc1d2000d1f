"""Lists the storages in an archive: their dtypes, and the tensors of its pickles that use them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.pickle_reading import Described, UnreadablePickle, read_pickle
from interpool.native.upstream.torch_private import (
    REBUILD_PARAMETER,
    REBUILD_TENSOR,
    REBUILD_WITH_TYPE,
    REBUILDERS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interpool.archiver_ext.mar.opening import OpenedArchive

_LARGEST_PICKLE = 64 << 20
_DEEPEST = 100
_MOST_TENSORS = 100_000  # in all pickles; one that is not made in Python may name a tensor in every two bytes

_DTYPES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
    "ComplexDouble": "complex128", "ComplexFloat": "complex64",
    "QInt8": "qint8", "QUInt8": "quint8", "QInt32": "qint32", "QUInt4x2": "quint4x2", "QUInt2x4": "quint2x4",
    "Untyped": "bytes",
}  # fmt: skip

_TENSORS = tuple(f"{REBUILDERS}:{name}" for name in REBUILD_TENSOR)
_PARAMETERS = tuple(f"{REBUILDERS}:{name}" for name in REBUILD_PARAMETER)
_WITH_TYPE = ":".join(REBUILD_WITH_TYPE)
# A module's own dictionaries, which are not part of names that users know.
_TRANSPARENT = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True)
class TensorRecord:
    """A tensor in a pickle.

    Attributes:
        name: its path from the pickled object, such as ``encoder.0.weight``.
        shape: its sizes.
        dtype: such as ``float32``.
    """

    name: str
    shape: list[int]
    dtype: str


@dataclass(frozen=True)
class StorageRecord:
    """A storage.

    Attributes:
        member: its name in the archive.
        bytes: its size.
        dtype: from the pickles; "" if unknown.
        tensors: the tensors that use it, in the entry or another pickle. Tied weights are several; there may
            be none.
    """

    member: str
    bytes: int
    dtype: str = ""
    tensors: list[TensorRecord] = field(default_factory=list)


def read_storages(opened: OpenedArchive) -> tuple[list[StorageRecord], list[str]]:
    """Return all storages, largest first, and a note for each unreadable pickle."""
    found: dict[str, list[TensorRecord]] = defaultdict(list)
    dtypes: dict[str, str] = {}
    notes = []
    left = _MOST_TENSORS
    for name in sorted(opened.records):
        if not name.endswith(".pkl"):
            continue
        if opened.records[name].size > _LARGEST_PICKLE:
            notes.append(f"{name} is too long to be looked through")
            continue
        try:
            root = read_pickle(opened.read(name) or b"")
        except UnreadablePickle as error:
            notes.append(f"{name} cannot be read as a pickle ({error})")
            continue
        for place, value in named_tensors(root):
            if (left := left - 1) < 0:
                notes.append(f"{name} names more than the {_MOST_TENSORS:,} tensors that are shown")
                break
            if value.what == "persistent":
                dtypes.setdefault(_member(value), _storage_dtype(value))
            else:
                member = _member(value.parts[0])
                dtypes.setdefault(member, _storage_dtype(value.parts[0]))
                found[member].append(TensorRecord(place, _sizes(value), _tensor_dtype(value)))
    storages = [
        StorageRecord(name, record.size, dtypes.get(name, ""), found.get(name, []))
        for name, record in opened.records.items()
        if name.startswith(".data/") and name.endswith(".storage")
    ]
    return sorted(storages, key=lambda storage: (-storage.bytes, storage.member)), notes


def named_tensors(root: Any) -> Iterator[tuple[str, Described]]:
    """Yield tensors, and storages outside of tensors, with their paths, in order.

    Args:
        root: the result of read_pickle.
    """
    waiting: list[Iterator[tuple[tuple[str, ...], Any]]] = [iter([((), root)])]
    seen: set[int] = set()
    while waiting:
        following = next(waiting[-1], None)
        if following is None:
            waiting.pop()
            continue
        path, value = following
        if not isinstance(value, Described) or len(path) > _DEEPEST:
            continue
        value = _unwrapped(value)
        # Tied weights have a name for each path.
        if _is_tensor(value) or _is_storage(value):
            yield ".".join(path), value
        elif id(value) not in seen:
            seen.add(id(value))
            waiting.append(_children(path, value))


def _unwrapped(value: Described) -> Described:
    """Return the tensor in a parameter, or in a tensor with attributes or of a subclass."""
    if value.name in _PARAMETERS and value.parts and isinstance(value.parts[0], Described):
        value = value.parts[0]
    if value.name == _WITH_TYPE and len(value.parts) >= 3:
        maker, _, arguments = value.parts[:3]
        if isinstance(maker, Described) and isinstance(arguments, Described):
            return Described("object", maker.name, arguments.parts)
    return value


def _children(path: tuple[str, ...], value: Described) -> Iterator[tuple[tuple[str, ...], Any]]:
    for index, part in enumerate(value.parts):
        # Arguments of a call have no names.
        yield (path if value.what == "object" else (*path, str(index))), part
    for key, part in value.pairs:
        named = isinstance(key, str) or _is_index(key)
        named = named and key not in _TRANSPARENT
        yield ((*path, str(key)) if named else path), part
    if isinstance(state := value.state, Described):
        # Neither a state nor its parts, such as one for __dict__ and one for __slots__, have names.
        for part in state.parts if state.what in ("tuple", "list") else [state]:
            yield path, part


def _is_storage(value: Any) -> bool:
    return (
        isinstance(value, Described)
        and value.what == "persistent"
        and len(value.parts) == 5
        and value.parts[0] == "storage"
    )


def _is_tensor(value: Described) -> bool:
    return value.name in _TENSORS and len(value.parts) >= 3 and _is_storage(value.parts[0])


def _member(storage: Described) -> str:
    return f".data/{storage.parts[2]}.storage"


def _storage_dtype(storage: Described) -> str:
    kind = storage.parts[1]
    name = kind.name.rpartition(":")[2] if isinstance(kind, Described) else ""
    return _DTYPES.get(name.removesuffix("Storage"), "")


def _tensor_dtype(tensor: Described) -> str:
    for part in tensor.parts[4:]:
        # Only _rebuild_tensor_v3 has a dtype argument.
        if isinstance(part, Described) and part.what == "global" and part.name.startswith("torch:"):
            return part.name.removeprefix("torch:")
    return _storage_dtype(tensor.parts[0])


def _sizes(tensor: Described) -> list[int]:
    size = tensor.parts[2]
    parts = size.parts if isinstance(size, Described) else []
    if len(parts) == 1 and isinstance(parts[0], Described):  # torch.Size((...))
        parts = parts[0].parts
    return [part for part in parts if _is_index(part)]


def _is_index(value: Any) -> bool:
    """Return whether a value is a plausible index or size of a list or tensor."""
    return isinstance(value, int) and -1 < value < 1 << 63
