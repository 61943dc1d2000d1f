"""Files in torch.save's format that torch.save never writes, each by a name that says what it tries."""

from __future__ import annotations

import pickle
import struct
from typing import Any

from test_native.hostile.zips import Member, zip_of

BYTES = bytes(range(16))


def file_of(pickled: bytes, *more: Member, storage: bytes = BYTES, byteorder: bytes = b"little") -> bytes:
    """A file with one storage, 0."""
    members = [
        Member("archive/data.pkl", pickled),
        Member("archive/byteorder", byteorder),
        Member("archive/data/0", storage),
        Member("archive/version", b"3\n"),
    ]
    return zip_of([*members, *more])


def plain(value: Any) -> bytes:
    """The instructions that push a value of None, numbers, texts and tuples."""
    return pickle.dumps(value, 2)[2:-1]


def named(name: str) -> bytes:
    module, _, last = name.rpartition(".")
    return f"c{module}\n{last}\n".encode()


def called(name: str, *args: bytes) -> bytes:
    return named(name) + b"(" + b"".join(args) + b"tR"


def reference(count: Any = 4, key: Any = "0", storage: str = "torch.FloatStorage") -> bytes:
    return b"(" + plain("storage") + named(storage) + plain(key) + plain("cpu") + plain(count) + b"tQ"


HOOKS = called("collections.OrderedDict")


def tensor(
    first: Any = 0,
    shape: Any = (4,),
    strides: Any = (1,),
    stored: bytes | None = None,
    grad: Any = False,
    more: bytes = b"",
) -> bytes:
    place = reference() if stored is None else stored
    rest = plain(first) + plain(shape) + plain(strides) + plain(grad) + HOOKS + more
    return called("torch._utils._rebuild_tensor_v2", place, rest)


def pickle_of(content: bytes) -> bytes:
    return b"\x80\x02" + content + b"."


GOOD = file_of(pickle_of(tensor()))

PICKLES = {
    "reads before its storage": tensor(first=-1),
    "reads behind its storage": tensor(first=1),
    "has a size that reads behind its storage": tensor(shape=(5,)),
    "has a stride that reads behind its storage": tensor(strides=(2,)),
    "has a stride below 0": tensor(first=3, strides=(-1,)),
    "has sizes whose product is 0 modulo 2**64": tensor(shape=(2**32, 2**32), strides=(0, 0)),
    "has a size beyond 64 bits": tensor(shape=(2**64,), strides=(0,)),
    "is expanded to gigabytes": tensor(shape=(2**30,), strides=(0,)),
    "is expanded to petabytes of nothing": tensor(shape=(0, 2**50), strides=(1, 1)),
    "has a bool as a size": tensor(shape=(True,)),
    "has a size that is no tuple": tensor(shape=4),
    "has fewer strides than sizes": tensor(strides=()),
    "has 65 dimensions": tensor(shape=(1,) * 65, strides=(1,) * 65),
    "needs a gradient by a number": tensor(grad=1),
    "is conjugated": tensor(more=b"}" + plain("conj") + b"\x88s"),
    "has two kinds of bits": tensor(more=b"}}"),
    "has a storage that is larger than its bytes": tensor(stored=reference(5)),
    "has a storage that is smaller than its bytes": tensor(stored=reference(3)),
    "has a storage of another type's size": tensor(stored=reference(storage="torch.DoubleStorage")),
    "has a storage that is not there": tensor(stored=reference(key="1")),
    "takes another member for its storage": tensor(stored=reference(key="../data.pkl")),
    "has no storage": tensor(stored=plain(None)),
    "has a quantized storage": tensor(stored=reference(16, storage="torch.QUInt8Storage")),
    "refers to a text": plain("0") + b"Q",
    "refers to an object of torch.package's": plain(("reduce_package", 1)) + b"Q",
    "calls os.system": called("os.system", plain("true")),
    "calls torch.load": called("torch.load", plain("x")),
    "calls a storage's class": called("torch.FloatStorage", plain(1 << 40)),
    "calls with a list": named("collections.OrderedDict") + b"]R",
    "asks for a terabyte of zeros": called("builtins.bytes", plain(1 << 40)),
    "encodes by another codec": called("_codecs.encode", plain("x"), plain("zip")),
    "encodes one text 500 times": b"(X\0\0\x10\0" + b"a" * (1 << 20) + b"q\x09"
    + called("_codecs.encode", b"h\x09", plain("latin1")) * 500
    + b"t",
    "holds a text of 1 MiB 100 times": b"(X\0\0\x10\0" + b"a" * (1 << 20) + b"q\x09" + b"h\x09" * 99 + b"t",
    "holds a key of 1 MiB 100 times": b"(X\0\0\x10\0" + b"a" * (1 << 20) + b"q\x09" + b"}h\x09Ns" * 99 + b"t",
    "makes a parameter of a text": called("torch._utils._rebuild_parameter", plain("x"), b"\x88", HOOKS),
    "sets attributes": tensor() + b"}b",
    "makes an object": named("collections.OrderedDict") + b")\x81",
    "holds a name": named("torch.float32"),
    "keeps nothing": b"q\x00",
    "takes what was never kept": b"j\xff\xff\xff\xff",
    "claims a text of gigabytes": b"X\xff\xff\xff\xff",
    "claims bytes of exabytes": b"\x8e" + b"\xff" * 8,
    "is a text in no UTF-8": b"X\x01\0\0\0\xff",
    "is a number of 2 GiB": b"\x8b\xff\xff\xff\x7f",
    "is a number as a text": b"I1\n",
    "ends twice": b"NN",
    "is nothing": b"",
    "pops a mark": b"(N\x86",
    "has no mark": b"Nt",
    "sets an item of a list": b"]NNs",
    "has a tuple as a key": b"})Ns",
    "has numbers of one hash as keys": b"}" + plain((1 << 61) - 1) + b"Ns",
    "is 40,000 lists deep": b"]" * 40_001 + b"a" * 40_000,
    "has tuples 90,000 deep as a key": b"})" + b"\x85" * 90_000 + b"Ns",
    "holds itself": b"]q\x00h\x00a",
    "has a list of two lists of two, 60 times": b"]q\x00"
    + b"".join(b"](" + b"h%ch%c" % (depth, depth) + b"eq%c" % (depth + 1) for depth in range(60)),
    "takes a million instructions": b"N0" * 500_000,
}  # fmt: skip

# What the zip tries: the pickle is good.
_GOOD = pickle_of(tensor())
FILES = {
    **{f"a pickle that {name}": file_of(pickle_of(content)) for name, content in PICKLES.items()},
    "a deflated bomb": zip_of(
        [Member("archive/data.pkl", _GOOD), Member("archive/data/0", bytes(1 << 24), deflated=True)]
    ),
    "a tensor of 1 MiB 100 times": file_of(
        pickle_of(
            b"("
            + tensor(shape=(1 << 20,), stored=reference(1 << 20, storage="torch.ByteStorage"))
            + b"q\x09"
            + b"h\x09" * 99
            + b"t"
        ),
        storage=bytes(1 << 20),
    ),
    "a deflated pickle": zip_of([Member("archive/data.pkl", _GOOD, deflated=True)]),
    "a member twice": file_of(_GOOD, Member("archive/data/0", BYTES)),
    "a member twice but for its case": file_of(_GOOD, Member("archive/DATA/0", BYTES)),
    "a member in another's place": file_of(_GOOD, Member("archive/x", b"", central={"offset": 0})),
    "a member beyond the end": file_of(
        _GOOD, Member("archive/x", b"").both(size=1 << 31, packed_size=1 << 31)
    ),
    "20,000 members": file_of(_GOOD, *(Member(f"archive/data/x{number}", b"") for number in range(20_000))),
    "an encrypted member": file_of(_GOOD, Member("archive/x", b"x").both(flags=1)),
    "two sizes of a member": file_of(_GOOD, Member("archive/x", b"x", local={"size": 2, "packed_size": 2})),
    "zip64 that lies": file_of(
        _GOOD, Member("archive/x", b"x", central={"size": 0xFFFFFFFF, "extra": struct.pack("<HHQ", 1, 8, 1)})
    ),
    "a byteorder that is big": file_of(_GOOD, byteorder=b"big"),
    "no pickle": zip_of([Member("archive/x", b""), Member("archive/data/0", BYTES)]),
    "bytes before it": b"PK\x03\x04" + GOOD,
    "bytes behind it": GOOD + b"x",
    "half of it": GOOD[: len(GOOD) // 2],
    "a module of TorchScript's": file_of(_GOOD, Member("archive/constants.pkl", b"")),
}
