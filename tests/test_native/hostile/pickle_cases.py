"""Archives that are whole, with a manifest that vouches for them, and a pickle that reaches too far."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any

from test_native.hostile.cases import PICKLE, Case, Good

from interpool.native.errors import StructureError

START, STOP = b"\x80\x04", b"."


def name(where: str) -> bytes:
    """A global, as ``module:name``."""
    return b"c" + where.replace(":", "\n").encode() + b"\n"


def value(plain: Any) -> bytes:
    """Plain data."""
    return pickle.dumps(plain, 2)[2:-1]


def tuple_of(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def call(function: bytes, *args: bytes) -> bytes:
    return function + tuple_of(*args) + b"R"


def persistent(saved: bytes) -> bytes:
    return saved + b"Q"


def _with(make: Callable[[Good], bytes], *taken: str) -> Callable[[Good], bytes]:
    """With that pickle as the model, and a manifest and externs that list all that it takes."""

    def build(good: Good) -> bytes:
        return good.taking(*taken).having({PICKLE: START + make(good) + STOP}).bytes()

    return build


def _storage(*parts: Any, kind: str = "storage") -> bytes:
    """A persistent id of weights; bytes among the parts are opcodes."""
    return persistent(tuple_of(value(kind), *(p if isinstance(p, bytes) else value(p) for p in parts)))


_FLOATS = name("torch:FloatStorage")
_WEIGHTS = _storage(_FLOATS, "0", "cpu", 4)


def _tensor(storage: bytes, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    hooks = call(name("collections:OrderedDict"))
    return call(name("torch._utils:_rebuild_tensor_v2"), storage, value(offset), value(sizes), value(strides),
                value(False), hooks)  # fmt: skip


def _script_object(state: object) -> bytes:
    return name("torch:ScriptObject") + b")\x81" + value(state) + b"b"


PICKLES = [
    Case("bytearray that claims a terabyte", "use up memory", "unpickling", "size",
         _with(lambda _good: b"\x96" + struct.pack("<Q", 1 << 40))),
    Case("truncated pickle", "crash the unpickler", "unpickling", "damaged-pickle",
         lambda good: good.having({PICKLE: good.members[PICKLE][:-40]}).bytes()),
    Case("memo that was never filled", "the same", "unpickling", "damaged-pickle",
         _with(lambda _good: b"j\xff\xff\xff\x7f")),
    Case("frame that ends within a number", "read what lies behind it", "unpickling", "damaged-pickle",
         _with(lambda _good: b"\x95" + struct.pack("<Q", 2) + b"J\0\0\0\0")),
    Case("extension code", "get what others registered in copyreg", "unpickling", "damaged-pickle",
         _with(lambda _good: b"\x82\x01")),
    Case("weights by a path", "read another member, or a file, as weights", "unpickling", "persistent-id",
         _with(lambda _good: _storage(_FLOATS, "../../etc/passwd", "cpu", 4))),
    Case("weights of a negative count", "map what lies before them", "unpickling", "persistent-id",
         _with(lambda _good: _storage(_FLOATS, "0", "cpu", -4))),
    Case("weights of a type that is none", "be viewed by another's dtype", "unpickling", "persistent-id",
         _with(lambda _good: _storage(name("collections:OrderedDict"), "0", "cpu", 4))),
    Case("object by text", "ask for a module, as protocol 0 did", "unpickling", "persistent-id",
         _with(lambda _good: b"Pos.system\n")),
    Case("object by a function that is none", "the same", "unpickling", "persistent-id",
         _with(lambda _good: _storage(0, "os.system", b")", kind="reduce_package"))),
    Case("more weights than there are", "map what lies behind them", "unpickling", "storage-size",
         _with(lambda _good: _storage(_FLOATS, "0", "cpu", 1 << 30)), error=StructureError),
    Case("weights of a wider type", "the same", "unpickling", "storage-size",
         _with(lambda _good: _storage(name("torch:DoubleStorage"), "0", "cpu", 4), "torch:DoubleStorage"),
         error=StructureError),
    Case("tensor before its weights", "read memory that is not its own", "unpickling", "tensor-bounds",
         _with(lambda _good: _tensor(_WEIGHTS, -1000, (4,), (1,)))),
    Case("tensor longer than its weights", "have torch make them longer, by what is in memory",
         "unpickling", "tensor-bounds", _with(lambda _good: _tensor(_WEIGHTS, 0, (1 << 20,), (1,)))),
    Case("quantized tensor longer than its weights", "the same, by another function", "unpickling",
         "tensor-bounds", _with(lambda _good: call(name("torch._utils:_rebuild_qtensor"), _WEIGHTS, value(0),
                                value((1 << 20,)), value((1,)), value(None)),
                       "torch._utils:_rebuild_qtensor")),
    Case("tensor with attributes longer than its weights", "the same, by a function that calls another",
         "unpickling", "tensor-bounds", _with(lambda _good: call(name("torch._tensor:_rebuild_from_type_v2"),
                                name("torch._utils:_rebuild_tensor_v2"), name("torch:Tensor"),
                                tuple_of(_WEIGHTS, value(0), value((1 << 20,)), value((1,)), value(False),
                                         call(name("collections:OrderedDict"))), b"}"),
                       "torch._tensor:_rebuild_from_type_v2", "torch:Tensor")),
    Case("tensor with huge strides", "the same, by an overflow", "unpickling", "tensor-bounds",
         _with(lambda _good: _tensor(_WEIGHTS, 0, (2, 2), (1 << 62, 1 << 62)))),
    Case("object of a class of C++", "make what some library has registered", "unpickling", "packed-weights",
         _with(lambda _good: _script_object((None, "__torch__.torch.classes.c10d.ProcessGroup")),
               "torch:ScriptObject")),
    Case("packed convolution without weights", "have C++ read beyond a list, and end the process",
         "unpickling", "packed-weights",
         _with(lambda _good: _script_object(
             (("2", [], []), "__torch__.torch.classes.quantized.Conv2dPackedParamsBase")),
             "torch:ScriptObject")),
]  # fmt: skip
