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


def stacked(module: str, attribute: str) -> bytes:
    """The same in protocol 4, which allows dots."""
    return value(module) + value(attribute) + b"\x93"


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


def _calls(where: str, *args: Any) -> Callable[[Good], bytes]:
    """A pickle that calls the external function with plain arguments; {} is the trace's path."""

    def make(good: Good) -> bytes:
        filled = [arg.replace("{}", good.called) if isinstance(arg, str) else arg for arg in args]
        return call(name(where), *map(value, filled))

    return _with(make, where)


def _storage(*parts: Any, kind: str = "storage") -> bytes:
    """A persistent id of weights; bytes among the parts are opcodes."""
    return persistent(tuple_of(value(kind), *(p if isinstance(p, bytes) else value(p) for p in parts)))


_FLOATS = name("torch:FloatStorage")
_WEIGHTS = _storage(_FLOATS, "0", "cpu", 4)


def _tensor(storage: bytes, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    hooks = call(name("collections:OrderedDict"))
    return call(name("torch._utils:_rebuild_tensor_v2"), storage, value(offset), value(sizes), value(strides),
                value(False), hooks)  # fmt: skip


def _deep(opcode: bytes, count: int, start: bytes = b")") -> bytes:
    return start + opcode * count


def _script_object(state: object) -> bytes:
    return name("torch:ScriptObject") + b")\x81" + value(state) + b"b"


_NETWORK = "ipaddress:IPv4Network"
_ADDRESSES = call(name(_NETWORK), value("0.0.0.0/0"))

# A function of the archive's own, so that nothing but the rule in question refuses it.
_OWN = name("scale_model:make")

PICKLES = [
    Case("os.system", "run a command through an extern", "unpickling", "policy",
         _calls("os:system", "touch {}")),
    Case("eval", "run Python text", "unpickling", "policy",
         _calls("builtins:eval", "open('{}', 'w')")),
    Case("exec in Python 2's name", "the same, by a name that pickle translates", "unpickling", "policy",
         lambda good: good.having({PICKLE: b"\x80\x02" + call(name("__builtin__:exec"),
                                   value(f"open('{good.called}', 'w')")) + STOP}).bytes()),
    Case("pkgutil.resolve_name", "get any function by text", "unpickling", "policy",
         _with(lambda good: call(call(name("pkgutil:resolve_name"), value("os:system")),
                                 value(f"touch {good.called}")), "pkgutil:resolve_name")),
    Case("torch.load", "unpickle again, unbounded", "unpickling", "policy", _calls("torch:load", "{}")),
    Case("torch.storage._load_from_bytes", "the same, from bytes at hand", "unpickling", "policy",
         _calls("torch.storage:_load_from_bytes", "{}")),
    Case("torch.fx from text", "run Python text that torch.fx compiles", "unpickling", "policy",
         _calls("torch.fx.graph_module:reduce_graph_module", {"_code": ""}, "open('{}', 'w')")),
    Case("torch.from_file", "map any file for writing", "unpickling", "policy",
         _calls("torch:from_file", "{}", True, 100)),
    Case("torch.from_file by getattr", "the same, by the class that holds torch's functions", "unpickling",
         "getattr", _with(lambda good: call(call(name("builtins:getattr"),
                          name("torch._C:_VariableFunctionsClass"), value("from_file")),
                          value(good.called), value(True), value(100)),
                          "builtins:getattr", "torch._C:_VariableFunctionsClass")),
    Case("numpy's ufunc by name", "import any module and take anything from it", "unpickling", "policy",
         _calls("numpy._core:_ufunc_reconstruct", "os", "system")),
    Case("numpy.load", "unpickle again, unbounded", "unpickling", "policy",
         _calls("numpy:load", "{}", None, True)),
    Case("numpy.memmap", "make a file", "unpickling", "policy",
         _calls("numpy:memmap", "{}", "u1", "w+", 0, 8)),
    Case("operator.attrgetter", "get attributes past the check of getattr", "unpickling", "policy",
         _calls("operator:attrgetter", "__globals__")),
    Case("interpool itself", "use the server's own code", "unpickling", "policy",
         _calls("interpool.native.inside.packages:open_package", "{}")),
    Case("dotted name of an extern", "go from a listed module to os", "unpickling", "dotted-name",
         _with(lambda good: call(stacked("torch", "serialization.os.system"),
                                 value(f"touch {good.called}")))),
    Case("dotted name of its own module", "the same, by a module of the archive", "unpickling", "dotted-name",
         _with(lambda good: call(stacked("scale_model", "os.system"), value(f"touch {good.called}")))),
    Case("module with a path", "import a file", "unpickling", "name",
         _with(lambda _good: stacked("../scale_model", "make"))),
    Case("os.system by its own module", "take what its own module took from os", "unpickling", "policy",
         _with(lambda good: call(name("scale_model:system"), value(f"touch {good.called}")))),
    Case("os by its own module", "take the module os", "unpickling", "policy",
         _with(lambda _good: name("scale_model:os"))),
    Case("builtins by its own module", "take eval out of a dictionary", "unpickling", "policy",
         _with(lambda _good: name("scale_model:__builtins__"))),
    Case("its own importer", "import and read past the check", "unpickling", "policy",
         _with(lambda _good: name("torch_package_importer:import_module"))),
    Case("os by a third party's module", "take what an extern took from os", "unpickling", "policy",
         _calls("safetensors.torch:os")),
    Case("global that is not listed", "take what the manifest does not say", "unpickling",
         "unlisted-global",
         lambda good: good.having({PICKLE: START + name("collections:Counter") + STOP}).bytes()),
    Case("globals of a function", "get from a function to its module's os", "unpickling", "getattr",
         _with(lambda _good: call(name("builtins:getattr"), _OWN, value("__globals__")), "builtins:getattr")),
    Case("classes of a class", "get to every class that there is", "unpickling", "getattr",
         _with(lambda _good: call(name("builtins:getattr"), name("builtins:object"), value("__subclasses__")),
               "builtins:getattr", "builtins:object")),
    Case("method of a path", "delete a file", "unpickling", "getattr",
         _with(lambda good: call(call(name("builtins:getattr"), call(name("pathlib:PosixPath"),
               value(good.called)), value("touch"))), "builtins:getattr", "pathlib:PosixPath")),
    Case("change of a class", "give torch.nn.Linear another forward for everybody", "unpickling", "build",
         _with(lambda _good: name("torch.nn.modules.linear:Linear")
               + tuple_of(value(None), b"}" + value("forward") + _OWN + b"s") + b"b",
               "torch.nn.modules.linear:Linear")),
    Case("change of the server's logger", "be called by everything that is logged", "unpickling", "build",
         _with(lambda _good: call(name("logging:getLogger")) + b"}" + value("level") + value(0) + b"sb",
               "logging:getLogger")),
    Case("registry of an extern", "put a class of its own into transformers' registry", "unpickling",
         "policy", _with(lambda _good: name("safetensors.torch:_TYPES"), "safetensors.torch:_TYPES")),
    Case("class of its own", "make a class whose methods are what it has", "unpickling", "type",
         _with(lambda _good: call(name("builtins:type"), value("Evil"), tuple_of(), value({})),
               "builtins:type")),
    Case("class of its own by __new__", "the same, by the opcode that makes instances", "unpickling", "type",
         _with(lambda _good: name("builtins:type") + tuple_of(value("Evil"), tuple_of(), value({})) + b"\x81",
               "builtins:type")),
    Case("class of its own by a partial", "the same, hidden in functools.partial", "unpickling", "type",
         _with(lambda _good: call(call(name("functools:partial"), name("builtins:type")), value("Evil"),
               tuple_of(), value({})), "functools:partial", "builtins:type")),
    Case("class of its own by copyreg", "the same, by the function that calls __new__", "unpickling", "type",
         _with(lambda _good: call(name("copyreg:__newobj__"), name("builtins:type"), value("Evil"),
               tuple_of(), value({})), "copyreg:__newobj__", "builtins:type")),
    Case("sympy", "run Python text by a package that torch brings along", "unpickling", "policy",
         _calls("sympy.core.sympify:sympify", "open('{}', 'w')")),
    Case("pydantic", "the same, by a package that the server itself uses", "unpickling", "policy",
         _calls("pydantic.type_adapter:TypeAdapter", "open('{}', 'w')")),
    Case("typing_extensions", "run Python text as if it were a type", "unpickling", "policy",
         _with(lambda good: call(name("typing_extensions:get_type_hints"), call(name("types:SimpleNamespace"))
               + value({"__annotations__": {"x": f"open({good.called!r}, 'w')"}}) + b"b"),
               "typing_extensions:get_type_hints", "types:SimpleNamespace")),
    Case("a third party's reader", "open a file by a function of an installed package", "unpickling",
         "policy", _calls("safetensors.torch:load_file", "{}")),
    Case("a third party's function", "call what was not made for pickles", "unpickling", "call",
         _calls("packaging.version:parse", "1.0")),
    Case("the same by defaultdict", "have a dict call what may only be held", "unpickling", "call",
         _with(lambda _good: call(name("_operator:getitem"), call(name("collections:defaultdict"),
               call(name("functools:partial"), name("builtins:print"), value("called"))), value(0)),
               "_operator:getitem", "collections:defaultdict", "functools:partial", "builtins:print")),
    Case("torch's unchecked function", "read outside of a tensor, and end the process", "unpickling", "call",
         _with(lambda _good: call(name("torch:_ctc_loss"), _tensor(_WEIGHTS, 0, (2, 1, 2), (2, 2, 1)),
               _tensor(_WEIGHTS, 0, (1, 1), (1, 1)), value([2]), value([1])), "torch:_ctc_loss",
               "torch:FloatStorage", "torch._utils:_rebuild_tensor_v2", "collections:OrderedDict")),
    Case("private method of torch's", "have a module call what it holds", "unpickling", "call",
         _with(lambda _good: call(call(name("builtins:getattr"),
               call(name("torch.nn.modules.linear:Identity")), value("_wrapped_call_impl")), value(1)),
               "builtins:getattr", "torch.nn.modules.linear:Identity")),
    Case("tuple nested 30,000 deep", "run C code out of stack when it is hashed, and end the process",
         "unpickling", "nesting", _with(lambda _good: b"}" + _deep(b"\x85", 30_000) + b"Ns")),
    Case("list[...] nested 30,000 deep", "the same, by calls", "unpickling", "nesting",
         _with(lambda _good: name("_operator:getitem") + b"q\x01" + name("builtins:list") + b"q\x02"
               + b"0" * 2 + b"}" + b"h\x01h\x02" * 30_000 + b"N" + b"\x86R" * 30_000 + b"Ns",
               "_operator:getitem", "builtins:list")),
    Case("tuple of 2 to the 60 parts", "hash for ever", "unpickling", "nesting",
         _with(lambda _good: b"})" + b"q\x01h\x01\x86" * 60 + b"Ns")),
    Case("bytearray that claims a terabyte", "use up memory", "unpickling", "size",
         _with(lambda _good: b"\x96" + struct.pack("<Q", 1 << 40))),
    Case("a terabyte of zeros", "the same, by a call", "unpickling", "size",
         _with(lambda _good: call(name("builtins:bytearray"), value(1 << 40)), "builtins:bytearray")),
    Case("list of all numbers", "the same, from a range", "unpickling", "size",
         _with(lambda _good: call(name("builtins:list"), call(name("builtins:range"), value(1 << 60))),
               "builtins:list", "builtins:range")),
    Case("list of all addresses", "use up memory by what makes its parts as it goes", "unpickling", "size",
         _with(lambda _good: call(name("builtins:list"), _ADDRESSES), "builtins:list", _NETWORK)),
    Case("dict of all addresses", "the same, by pairs", "unpickling", "size",
         _with(lambda _good: call(name("builtins:dict"), call(name("builtins:zip"), _ADDRESSES, _ADDRESSES)),
               "builtins:dict", "builtins:zip", _NETWORK)),
    Case("tuple of all addresses by __new__", "the same, by the opcode that makes instances", "unpickling",
         "size", _with(lambda _good: name("builtins:tuple") + tuple_of(_ADDRESSES) + b"\x81",
                       "builtins:tuple", _NETWORK)),
    Case("tuple of all addresses by copyreg", "the same, by the function that calls __new__", "unpickling",
         "size", _with(lambda _good: call(name("copyreg:_reconstructor"), name("builtins:tuple"),
                       name("builtins:tuple"), _ADDRESSES),
                       "copyreg:_reconstructor", "builtins:tuple", _NETWORK)),
    Case("list of all addresses by list[int]", "the same, by what stands for the class", "unpickling", "size",
         _with(lambda _good: call(call(name("types:GenericAlias"), name("builtins:list"),
               name("builtins:int")), _ADDRESSES),
               "types:GenericAlias", "builtins:list", "builtins:int", _NETWORK)),
    Case("arguments without an end", "the same, by the arguments of a call", "unpickling", "call",
         _with(lambda _good: name("builtins:set") + _ADDRESSES + b"R", "builtins:set", _NETWORK)),
    Case("fraction of ten billion digits", "compute for ever, and use up memory", "unpickling", "size",
         _with(lambda _good: call(name("fractions:Fraction"), value("1e9999999999")), "fractions:Fraction")),
    Case("int of a billion digits", "the same, by a number that is short as a decimal", "unpickling", "size",
         _with(lambda _good: call(name("builtins:int"), call(name("decimal:Decimal"), value("1e999999999"))),
               "builtins:int", "decimal:Decimal")),
    Case("partial of itself", "call itself for ever", "unpickling", "call",
         _with(lambda _good: call(name("functools:partial"), name("builtins:list")) + b"q\x07"
               + tuple_of(b"h\x07", b")", b"}", b"N") + b"b" + b")R", "functools:partial", "builtins:list")),
    Case("10 to the 10 to the 10", "compute for ever", "unpickling", "call",
         _with(lambda _good: call(name("_operator:pow"), value(10), value(10**10)), "_operator:pow")),
    Case("iterator that calls", "hide the call in an iterator", "unpickling", "call",
         _with(lambda _good: call(name("builtins:iter"), name("builtins:print"), value(0)),
               "builtins:iter", "builtins:print")),
    Case("a terabyte of ones", "use up memory by torch", "unpickling", "call",
         _with(lambda _good: call(call(name("builtins:getattr"), name("torch._C:_VariableFunctionsClass"),
               value("ones")), value(1 << 40)), "builtins:getattr", "torch._C:_VariableFunctionsClass")),
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
    Case("hook's handle with an infinite number", "have all hooks of the process share one number",
         "unpickling", "hook-number",
         _with(lambda _good: name("torch.utils.hooks:RemovableHandle") + b")\x81"
               + value((None, float("inf"), ())) + b"b", "torch.utils.hooks:RemovableHandle")),
]  # fmt: skip
