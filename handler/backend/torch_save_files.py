"""Reads request bodies that ``torch.save`` wrote: tensors and plain data, and nothing else.

``torch.load(weights_only=True)`` runs no code of a file, but it gives no other protection. It believes what a
file says of its tensors, and unpacks compressed members. This module reads the zip as strictly as that of an
archive, and requires uncompressed members. ``PlainPickle`` reads the pickle, and ``DenseTensors`` makes the
tensors.

A file may contain tensors, parameters (which become tensors), None, bool, int, float, str and bytes. It may
also contain lists, tuples and dicts of all these; an OrderedDict becomes a dict.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

import torch

from interpool.handler.backend.dense_tensors import NUMPY_TYPES, DenseTensors, shown
from interpool.handler.backend.plain_pickle import SEND, Maker, PlainPickle
from interpool.handler.errors import InputError
from interpool.native.archive.zip_structure import Record, read_structure
from interpool.native.errors import StructureError
from interpool.native.upstream.torch_private import REBUILDERS

MOST_MEMBERS: Final = 10_000
"""Of the zip: one for each tensor, of which PlainPickle's limits allow some 3,000, and a few beside them."""

# The pickled magic number near the start of torch.save's format before it was a zip.
_LEGACY = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_PICKLE = "data.pkl"
_OF_TORCHSCRIPT = "constants.pkl"

_TYPES: Final = {str(dtype).removeprefix("torch."): dtype for dtype in NUMPY_TYPES}
_STORAGES: Final = {
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "ShortStorage": torch.int16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
}

_ADVICE: Final = {
    "_rebuild_sparse_tensor": "send tensor.to_dense()",
    "_rebuild_sparse_csr_tensor": "send tensor.to_dense()",
    "_rebuild_qtensor": "send tensor.dequantize()",
    "_rebuild_nested_tensor": "send torch.nested.to_padded_tensor(tensor, 0.0)",
    "_rebuild_meta_tensor_no_storage": "send a tensor that has data",
    "_rebuild_from_type_v2": "send torch.Tensor(tensor), which has no attributes and is of no subclass",
    "_rebuild_parameter_with_state": "send tensor.detach()",
    "_reconstruct": "send torch.from_numpy(array)",
    "scalar": "send value.item()",
    "Size": "send tuple(size)",
    "set": "send a list",
}
"""What to send instead of what a name stands for."""


class _StorageType(NamedTuple):
    """The class of a storage. The dtype is None if the storage has only bytes."""

    dtype: torch.dtype | None


class _Storage(NamedTuple):
    """Where the bytes of a storage are in the body."""

    dtype: torch.dtype | None
    place: range


def is_torch_save(data: bytes | bytearray) -> bool:
    """Whether bytes begin like a file of any version of ``torch.save``, or are a zip with its pickle."""
    if data[:1] == b"\x80":
        return _LEGACY in data[:24]
    if not data.startswith(b"PK\x03\x04"):
        return False
    first = data[30 : 30 + int.from_bytes(data[26:28], "little")]
    end = data.rfind(b"PK\x05\x06")
    directory = data[int.from_bytes(data[end + 16 : end + 20], "little") :] if end >= 0 else b""
    return b"/data.pkl" in first or b"/data.pkl" in directory


def read_torch_save(name: str, data: bytes | bytearray) -> Any:
    """Read a file that ``torch.save`` wrote.

    Args:
        name: of the body, for messages.
        data: the content of the file.

    Returns:
        The saved value. Its tensors are contiguous, on the CPU, in their own memory, and need no gradient.

    Raises:
        InputError: the file breaks the format, or contains something other than tensors and plain data.
    """
    if not data.startswith(b"PK\x03\x04"):
        raise InputError(
            f"{name} is a torch.save file of the format before torch 1.6: send what torch.save writes now, "
            "without _use_new_zipfile_serialization=False"
        )
    return _TorchFile(name, data).value()


class _TorchFile:
    def __init__(self, name: str, data: bytes | bytearray) -> None:
        self._name = name
        self._data = data
        self._tensors = DenseTensors(name, data)
        self._bytes_left = len(data)
        self._records = self._read_records()

    def value(self) -> Any:
        if _PICKLE not in self._records:
            self._refuse(f"has no {_PICKLE}: send what torch.save writes")
        if "byteorder" in self._records and self._content("byteorder") != b"little":
            self._refuse("was not written on a little-endian machine: send it from one, or as safetensors")
        return PlainPickle(self._name, self._content(_PICKLE), self._named, self._stored).value()

    def _read_records(self) -> Mapping[str, Record]:
        try:
            records = read_structure(self._name, io.BytesIO(self._data), MOST_MEMBERS)
        except StructureError as error:
            if error.rule == "too-many-members":
                self._refuse(f"has more than {MOST_MEMBERS:,} members: send fewer, larger tensors")
            # The error's own advice is for users who pack archives.
            self._refuse(f"breaks the rule {error.rule!r} of zips: send what torch.save writes, unchanged")
        if _OF_TORCHSCRIPT in records:
            self._refuse("is a TorchScript module: send the tensors that the model is to be called with")
        if not all(record.stored for record in records.values()):
            self._refuse("is compressed: send what torch.save writes, unchanged")
        return records

    def _content(self, member: str) -> bytes:
        """A member's content. Its checksum is not checked: torch.save may omit it, and it proves nothing."""
        place = self._place(member)
        return bytes(self._data[place.start : place.stop])

    def _place(self, member: str) -> range:
        record = self._records[member]
        return range(record.offset, record.offset + record.size)

    def _named(self, module: str, name: str) -> Any:
        match module, name:
            case ("collections", "OrderedDict"):
                return Maker(self._ordered)
            case ("_codecs", "encode"):
                return Maker(self._encoded)
            case ("__builtin__" | "builtins", "bytes"):
                return Maker(self._no_bytes)
            case (module, "_rebuild_tensor_v2") if module == REBUILDERS:
                return Maker(self._tensor)
            case (module, "_rebuild_tensor_v3") if module == REBUILDERS:
                return Maker(self._typed_tensor)
            case (module, "_rebuild_parameter") if module == REBUILDERS:
                return Maker(self._parameter)
            case ("torch.storage", "UntypedStorage"):
                return _StorageType(None)
            case ("torch", name) if name in _STORAGES:
                return _StorageType(_STORAGES[name])
            case ("torch", name) if name in _TYPES:
                return _TYPES[name]
        return self._refuse(f"holds {shown(f'{module}.{name}')}: {_ADVICE.get(name, SEND)}")

    def _stored(self, reference: Any) -> _Storage:
        match reference:
            case ("storage", _StorageType(dtype), str(key), str(), int(count)):
                member = f"data/{key}"
                if member not in self._records:
                    self._refuse("lacks the bytes of a tensor: send it again")
                place = self._place(member)
                if type(count) is not int or count * (dtype.itemsize if dtype else 1) != len(place):
                    self._refuse("says of a tensor's bytes that there are more or fewer: send tensor.clone()")
                return _Storage(dtype, place)
        return self._refuse(f"refers to something that is no tensor's bytes: {SEND}")

    # What a pickle may call.

    def _ordered(self, *args: Any) -> dict[Any, Any]:
        if args:
            self._refuse("makes an OrderedDict as torch.save does not: send a dict")
        return {}

    def _no_bytes(self, *args: Any) -> bytes:
        if args:
            self._refuse("makes bytes as torch.save does not: send a tensor of uint8")
        return b""

    def _encoded(self, *args: Any) -> bytes:
        """Bytes, as protocol 2 writes them."""
        match args:
            case (str(text), "latin1"):
                # torch.save writes one text for each. A pickle that repeats one text would exhaust memory.
                self._bytes_left -= len(text)
                if self._bytes_left < 0:
                    self._refuse("makes more bytes than it holds: send a tensor of uint8 for each")
                try:
                    return text.encode("latin1")
                except UnicodeEncodeError:
                    pass
        return self._refuse("makes bytes as torch.save does not: send a tensor of uint8")

    def _tensor(self, *args: Any) -> torch.Tensor:
        match args:
            case (
                _Storage(torch.dtype() as dtype, place),
                first,
                tuple(shape),
                tuple(strides),
                bool(),
                {},
                *rest,
            ):
                self._check_bits(rest)
                return self._tensors.make(dtype, place, shape, strides, first=first)
        return self._refuse("makes a tensor as torch.save does not: send tensor.clone()")

    def _typed_tensor(self, *args: Any) -> torch.Tensor:
        match args:
            case (
                _Storage(None, place),
                first,
                tuple(shape),
                tuple(strides),
                bool(),
                {},
                torch.dtype() as dtype,
                *rest,
            ):
                self._check_bits(rest)
                return self._tensors.make(dtype, place, shape, strides, first=first)
        return self._refuse("makes a tensor as torch.save does not: send tensor.clone()")

    def _check_bits(self, rest: list[Any]) -> None:
        """Refuse the bits by which torch says that it conjugates or negates a tensor's elements later."""
        if rest and (len(rest) > 1 or (rest[0] is not None and (type(rest[0]) is not dict or rest[0]))):
            self._refuse("holds a tensor with bits: send tensor.resolve_conj().resolve_neg()")

    def _parameter(self, *args: Any) -> torch.Tensor:
        match args:
            case (torch.Tensor() as tensor, bool(), {}):
                return tensor
        return self._refuse("makes a parameter as torch.save does not: send parameter.detach().clone()")

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(f"{self._name} is a torch.save file that {what}")
