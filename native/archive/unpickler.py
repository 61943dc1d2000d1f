"""Unpickles from an archive with limits, as a further defence after structure and digests.

``pickle_policy``, and the manifest if there is one, must allow each external global of a pickle. A pickle
cannot change the values into anything else: names have no dots, ``getattr`` returns only methods, nothing
changes a class.

Pickles that could end the process are refused. Such a pickle nests too deep for C code's stack, claims more
bytes than it has, or fills a container or number from an iterable without an end.

Code in the archive is not limited by this: it can import any module.
"""

from __future__ import annotations

import array
import collections
import enum
import fractions
import logging
import numbers
import operator
import pickle
import re
import types
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch
from torch.package import PackageImporter
from torch.utils.hooks import RemovableHandle

from interpool.native.archive import packed_weights
from interpool.native.archive.format import is_dotted_name, is_module_name
from interpool.native.archive.pickle_policy import (
    allows_call,
    allows_name,
    allows_value,
    current_name,
    is_dunder,
    is_external,
    is_standard,
    unwrapped,
)
from interpool.native.archive.typed_json import shown
from interpool.native.errors import ArchiveError, PickleError
from interpool.native.upstream.attribute_names import intern_names, named_in
from interpool.native.upstream.torch_private import (
    DTYPE_ARGUMENT,
    OWN_MODULES,
    QUANTIZED_LAYERS,
    REBUILD_TENSOR,
    REBUILDERS,
    REDUCED,
    PackageUnpickler,
    TensorBase,
    VariableFunctionsClass,
    is_mangled,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from interpool.native.archive.format import Manifest

DEEPEST: Final = 200
"""Levels of nested arguments and tuples; C code follows them without its own limit."""
WIDEST: Final = 10_000_000
"""Parts of a tuple on all levels, counted as often as they occur: hashing visits each."""

_ADVICE = "If the model needs it, make it in code of the model's instead of pickling it"


def restrict(importer: PackageImporter, manifest: Manifest | None, path: str) -> None:
    """Limit the external globals that pickles of an importer's archive may use.

    Afterwards ``importer.load_pickle`` raises PickleError if a pickle breaks a limit or is damaged.

    Args:
        importer: changed in place; it keeps objects that it has unpickled already.
        manifest: the archive's, whose ``globals`` are the only ones allowed; None for a plain torch.package,
            for which the policy decides alone.
        path: the archive, for messages.
    """
    listed = None if manifest is None else frozenset(manifest["globals"])

    def unpickler(*args: Any, **kwargs: Any) -> _Unpickler:
        return _Unpickler(importer, listed, path, *args, **kwargs)

    importer.Unpickler = unpickler


_PurePython: Any = PackageUnpickler  # pickle's pure Python class, which typeshed does not describe


class _Unpickler(_PurePython):  # type: ignore[misc]
    def __init__(
        self,
        importer: PackageImporter,
        listed: frozenset[str] | None,
        path: str,
        file: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(importer, file, **kwargs)
        self._package = importer
        self._externs = frozenset(importer.extern_modules)
        self._listed = listed
        self._path = path
        self._size = len(file.getbuffer()) if hasattr(file, "getbuffer") else None
        # Depth and width of nested objects, by id. The objects are kept alive, so that ids stay valid.
        self._extents: dict[int, tuple[int, int]] = {}
        self._kept: list[Any] = []
        self._globals: dict[int, Any] = {}  # global objects, by id

    def load(self) -> Any:
        """Return the object.

        Raises:
            PickleError: the pickle breaks a limit, or is damaged.
            Exception: what the model's own code raises.
        """
        try:
            return super().load()
        except _DAMAGE as error:
            if _raised_by_pickle(error):
                self._refuse(
                    "damaged-pickle",
                    f"a pickle in it is damaged ({type(error).__name__}: {shown(str(error))}). Copy it again",
                    error,
                )
            raise

    # Globals.

    def find_class(self, module: str, name: str) -> Any:
        """Return a global that a pickle names.

        Args:
            module: dotted name of the module, as the pickle writes it.
            name: of the global in it.

        Raises:
            PickleError: the pickle may not use it.
        """
        module, name = current_name(module, name, self.proto)
        external = is_external(module, self._externs)
        if not is_module_name(module) or (external and not is_dotted_name(module)):
            self._refuse_global("name", module, name, "is not the name of a global")
        if not name.isidentifier():
            self._refuse_global("dotted-name", module, name, "is not a name that a module has")
        if module == OWN_MODULES[0]:
            self._refuse_global("policy", module, name, "is the archive's own reader")
        if external:
            value = self._external(module, name)
        elif is_dunder(name):
            self._refuse_global("policy", module, name, "is Python's own")
        else:
            value = self._get(module, name)
            self._check_own(module, name, value)
        self._globals[id(value)] = value
        return value

    def _external(self, module: str, name: str) -> Any:
        if not allows_name(module, name):
            self._refuse_global("policy", module, name, "pickles of models may not use")
        if self._listed is not None and f"{module}:{name}" not in self._listed:
            self._refuse_global("unlisted-global", module, name, "is not listed by its manifest")
        if (module, name) == ("builtins", "getattr"):
            return self._checked_getattr
        if (module, name) == packed_weights.NAME:
            return packed_weights.PackedWeights
        value = self._get(module, name)
        if not allows_value(module, name, value):
            self._refuse_global("policy", module, name, "pickles of models may not use")
        return value

    def _get(self, module: str, name: str) -> Any:
        found = self._package.import_module(module)
        if not hasattr(found, name):
            self._refuse_global("missing-global", module, name, "does not exist")
        return getattr(found, name)

    def _check_own(self, module: str, name: str, value: Any) -> None:
        """Check that a member of an archived module is not an external object that pickles may not use."""
        if isinstance(value, (types.ModuleType, PackageImporter)) or value is self._package.patched_builtins:
            self._refuse_global("policy", module, name, "is not an object of the module's own")
        if not isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            return
        home: Any = getattr(value, "__module__", None)
        if not isinstance(home, str):
            home = getattr(type(getattr(value, "__self__", None)), "__module__", "builtins")
        if is_mangled(home) or home == module:
            return
        own = getattr(value, "__name__", name)
        if not allows_name(home, own) or not allows_value(home, own, value):
            self._refuse_global("policy", module, name, f"is {home}:{own}, which a pickle may not have")

    def _checked_getattr(self, obj: Any, name: Any, *default: Any) -> Any:
        """Replace getattr for pickles: it returns only methods, classes in classes, and members of enums."""
        if type(name) is str and name.isidentifier() and _may_read(obj, name):
            value = getattr(obj, name, *default)
            if name in (obj.__members__ if isinstance(obj, enum.EnumMeta) else ()):
                return value
            if isinstance(value, (type, *_METHODS)) and _may_return(obj, name, value):
                return value
        return self._refuse(
            "getattr",
            f"a pickle in it asks a {type(obj).__qualname__} for {shown(name)}, which it may not have. "
            f"{_ADVICE}",
        )

    # Calls and changes.

    def _check_call(self, function: Any, args: Any) -> None:
        self._check_arguments(args, {})
        function, args = unwrapped(function, args)
        first = args[0] if args else None
        if not allows_call(function):
            what = f"{getattr(function, '__module__', None)}:{getattr(function, '__name__', function)}"
            self._refuse("call", f"a pickle in it calls {what}, which it may name, but not call. {_ADVICE}")
        if function is iter and len(args) != 1:
            self._refuse("call", f"a pickle in it makes an iterator that calls. {_ADVICE}")
        if function is operator.getitem and isinstance(first, dict):
            self._refuse("call", f"a pickle in it makes a dict call a function for a missing key. {_ADVICE}")
        if function is not type:
            self._check_class(function)
        elif len(args) != 1 or not any(first is each for each in (None, ..., NotImplemented)):
            self._refuse("type", "a pickle in it makes a class of its own")
        if getattr(function, "__module__", None) == "copyreg":
            match function.__name__, args:
                case "__newobj__", (made, *given):
                    self._check_new(made, tuple(given), {})
                case "__newobj_ex__", (made, given, keywords):
                    self._check_new(made, given, keywords)
                case "_reconstructor", (made, base, state):
                    self._check_class(made)
                    self._check_new(base, (state,), {})
        if any(_is_long(each) for each in args):
            self._refuse("size", f"a pickle in it iterates over a range of more than {WIDEST:,} numbers")
        self._check_size(function, args)
        if getattr(function, "__module__", None) == REBUILDERS and isinstance(
            first, torch.storage.TypedStorage
        ):
            self._check_tensor(function.__name__, first, args)

    def _check_new(self, made: Any, args: Any, keywords: Any) -> None:
        """Check the arguments of a class's ``__new__``."""
        self._check_class(made)
        self._check_arguments(args, keywords)
        self._check_size(made, (*args, *keywords.values()))

    def _check_arguments(self, args: Any, keywords: Any) -> None:
        """Require a tuple, which pickle itself writes; other iterables may have no end."""
        if not isinstance(args, tuple) or not isinstance(keywords, dict):
            self._refuse("call", "a pickle in it calls with arguments that are no tuple")

    def _check_size(self, made: Any, args: tuple[Any, ...]) -> None:
        """Check that an object of a Python class is about as large as its arguments."""
        first = args[0] if args else None
        if (made is bytes or made is bytearray) and isinstance(first, int):
            self._refuse("size", f"a pickle in it asks for {shown(first)} bytes of zeros")
        at = _CONTAINERS.get(id(made), len(args))
        for each in args[at : at + 1]:
            if not isinstance(each, _FINITE) or _is_long(each):
                what = f"a {made.__name__} from a {type(each).__qualname__}"
                self._refuse("size", f"a pickle in it fills {what}, which may have no end")
        if made is int and args and not isinstance(first, (*_TEXTS, numbers.Real)):
            self._refuse("size", f"a pickle in it makes an int of a {type(first).__qualname__}")
        if made is fractions.Fraction and not all(map(_is_short, args)):
            self._refuse("size", "a pickle in it makes a fraction of a number with an exponent")

    def _check_class(self, made: Any) -> None:
        """Refuse to instantiate metaclasses: their classes could have any name."""
        if isinstance(made, type) and issubclass(made, type):
            self._refuse("type", "a pickle in it makes a class of its own")

    def _check_tensor(self, function: str, storage: torch.storage.TypedStorage, args: Any) -> None:
        """Check that a tensor lies within its weights; torch would extend them with uninitialized memory."""
        if not function.startswith(REBUILD_TENSOR) or len(args) < 4:
            return
        offset, sizes, strides = args[1:4]
        dtype_at = DTYPE_ARGUMENT.get(function, len(args))
        dtype = args[dtype_at] if dtype_at < len(args) else storage.dtype
        good = all(type(each) is tuple or isinstance(each, torch.Size) for each in (sizes, strides))
        good = good and all(type(number) is int and number >= 0 for number in (offset, *sizes, *strides))
        good = good and len(sizes) == len(strides) and isinstance(dtype, torch.dtype)
        if good and 0 not in sizes:
            last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
            good = (last + 1) * dtype.itemsize <= storage.nbytes()
        if not good:
            self._refuse("tensor-bounds", "a pickle in it holds a tensor that reaches beyond its weights")

    def _load_reduce(self) -> None:
        if len(self.stack) >= 2:
            self._check_call(self.stack[-2], self.stack[-1])
        extent = self._extent(self.stack[-1:])
        super().load_reduce()
        self._remember(self.stack[-1], extent)

    def _load_newobj(self) -> None:
        if len(self.stack) >= 2:
            self._check_new(self.stack[-2], self.stack[-1], {})
        extent = self._extent(self.stack[-1:])
        super().load_newobj()
        self._remember(self.stack[-1], extent)

    def _load_newobj_ex(self) -> None:
        if len(self.stack) >= 3:
            self._check_new(self.stack[-3], self.stack[-2], self.stack[-1])
        extent = self._extent(self.stack[-2:])
        super().load_newobj_ex()
        self._remember(self.stack[-1], extent)

    def _instantiate(self, klass: Any, args: Any) -> None:
        self._check_call(klass, tuple(args))
        extent = self._extent(args)
        super()._instantiate(klass, args)
        self._remember(self.stack[-1], extent)

    def _load_build(self) -> None:
        target = self.stack[-2] if len(self.stack) >= 2 else None
        if (
            isinstance(target, (type, types.ModuleType, logging.Logger, enum.Enum, *_METHODS))
            or id(target) in self._globals
        ):
            self._refuse("build", f"a pickle in it changes a {type(target).__name__} that is not its own")
        if isinstance(target, packed_weights.PackedWeights):
            self._fill_packed(target)
            return
        if isinstance(target, RemovableHandle):
            self._check_handle(self.stack[-1])
        extent = max(self._extent(self.stack[-1:]), self._extents.get(id(target), (0, 0)))
        if isinstance(target, torch.nn.Module):
            if type(target).__module__.startswith(QUANTIZED_LAYERS):
                torch.nn.Module.__init__(target)  # states of convolutions lack these attributes
            self._intern_names(self.stack[-1])
        super().load_build()
        if self.stack:
            self._remember(self.stack[-1], extent)

    def _fill_packed(self, stand_in: packed_weights.PackedWeights) -> None:
        state = self.stack.pop()
        try:
            made = packed_weights.make(state)
        except ValueError as error:
            self._refuse("packed-weights", f"a pickle in it holds {error}. {_ADVICE}", error)
        self.stack[-1] = made
        for index, value in self.memo.items():
            if value is stand_in:
                self.memo[index] = made

    def _check_handle(self, state: Any) -> None:
        """Check a hook's number: torch numbers all later hooks of the process from there."""
        number = state[1] if type(state) is tuple and len(state) > 1 else None
        if type(number) is not int or not 0 <= number <= _LAST_HOOK:
            self._refuse("hook-number", "a pickle in it has an invalid number for a hook")

    def _intern_names(self, state: Any) -> None:
        """Intern the names of a module's state, unless they are in a global, which pickles may not change."""
        if type(state) is dict and not any(id(each) in self._globals for each in named_in(state)):
            intern_names(state)

    def _load_tuple(self) -> None:
        super().load_tuple()
        self._remember_tuple()

    def _load_tuple1(self) -> None:
        super().load_tuple1()
        self._remember_tuple()

    def _load_tuple2(self) -> None:
        super().load_tuple2()
        self._remember_tuple()

    def _load_tuple3(self) -> None:
        super().load_tuple3()
        self._remember_tuple()

    def _load_frozenset(self) -> None:
        super().load_frozenset()
        self._remember_tuple()

    def _remember_tuple(self) -> None:
        value = self.stack[-1]
        self._remember(value, self._extent(value))

    def _extent(self, parts: Any) -> tuple[int, int]:
        """Return one more than the depth of the deepest part, and the sum of all widths."""
        known = [self._extents[id(part)] for part in parts if id(part) in self._extents]
        if not known:
            return 1, len(parts)
        return 1 + max(depth for depth, _ in known), len(parts) + sum(width for _, width in known)

    def _remember(self, value: Any, extent: tuple[int, int]) -> None:
        if extent[0] > DEEPEST or extent[1] > WIDEST:
            self._refuse("nesting", f"a pickle in it nests more than {DEEPEST} objects in each other, or "
                         f"more than {WIDEST:,} in one")  # fmt: skip
        if isinstance(value, (tuple, frozenset)) or extent[0] > 1:
            if id(value) not in self._extents:
                self._kept.append(value)
            self._extents[id(value)] = extent

    # Persistent ids.

    def _load_binpersid(self) -> None:
        saved = self.stack[-1] if self.stack else None
        self._check_persistent(saved)
        try:
            super().load_binpersid()
        except RuntimeError as error:  # torch's own advice is about torch.load
            if type(saved) is tuple and saved[0] == "storage" and not _has_device(saved[3]):
                raise ArchiveError(
                    f"{self._path}: its weights were packed on {saved[3]}, which torch does not find here. "
                    "Pack the model on the CPU: a handler can take it to its worker's GPU",
                    "device",
                ) from error
            raise

    def _load_persid(self) -> NoReturn:
        self._refuse(
            "persistent-id", "a pickle in it refers to an object by text, as torch.package never does"
        )

    def _check_persistent(self, saved: Any) -> None:
        parts = list(saved) if isinstance(saved, tuple) else []
        if len(parts) == 5 and parts[0] == "storage":
            _, storage, key, location, count = parts
            good = isinstance(storage, type) and issubclass(storage, _STORAGES)
            good = good and type(key) in (int, str) and _STORAGE_KEY.fullmatch(str(key)) is not None
            good = good and type(location) is str and type(count) is int and count >= 0
        else:
            good = len(parts) in (3, 4) and parts[0] == REDUCED
            good = good and callable(parts[-2]) and type(parts[-1]) is tuple and allows_call(parts[-2])
        if not good:
            self._refuse(
                "persistent-id",
                "a pickle in it asks for something that is neither weights nor an object of torch.package's",
            )

    def _load_bytearray8(self) -> None:
        size = int.from_bytes(self.read(8), "little")
        if self._size is None or size > self._size:
            self._refuse("size", f"a pickle in it claims {size:,} bytes, more than it has")
        self.append(bytearray(self.read(size)))

    def _refuse_global(self, rule: str, module: str, name: str, why: str) -> NoReturn:
        text = shown(f"{module}:{name}")[1:-1]
        self._refuse(rule, f"a pickle in it uses {text}, which {why}. {_ADVICE}")

    def _refuse(self, rule: str, what: str, cause: BaseException | None = None) -> NoReturn:
        raise PickleError(f"{self._path}: {what}", rule) from cause


_OVERRIDES: dict[bytes, Callable[[_Unpickler], None]] = {
    pickle.BINPERSID: _Unpickler._load_binpersid,
    pickle.BUILD: _Unpickler._load_build,
    pickle.BYTEARRAY8: _Unpickler._load_bytearray8,
    pickle.FROZENSET: _Unpickler._load_frozenset,
    pickle.NEWOBJ: _Unpickler._load_newobj,
    pickle.NEWOBJ_EX: _Unpickler._load_newobj_ex,
    pickle.PERSID: _Unpickler._load_persid,
    pickle.REDUCE: _Unpickler._load_reduce,
    pickle.TUPLE: _Unpickler._load_tuple,
    pickle.TUPLE1: _Unpickler._load_tuple1,
    pickle.TUPLE2: _Unpickler._load_tuple2,
    pickle.TUPLE3: _Unpickler._load_tuple3,
}
_Unpickler.dispatch = {
    **PackageUnpickler.dispatch,
    **{code[0]: function for code, function in _OVERRIDES.items()},
}

_METHODS = (
    types.MethodType,
    types.FunctionType,
    types.BuiltinMethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)
_DAMAGE = (
    pickle.UnpicklingError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NameError,
    TypeError,
    ValueError,
)
_STORAGES = (torch.UntypedStorage, torch.storage.TypedStorage)
_STORAGE_KEY = re.compile(r"[0-9]{1,10}")

_LAST_HOOK: Final = 2**62  # more hooks than any process registers

_TORCH_OWNERS = (
    torch.nn.Module,
    torch.Tensor,
    TensorBase,
    VariableFunctionsClass,
)

_TEXTS = (str, bytes, bytearray)
# Classes that iterate over an argument, by id, with its index. Pickles pass one of _FINITE.
_CONTAINERS = {
    **dict.fromkeys(map(id, (bytes, bytearray, list, tuple, dict, set, frozenset, torch.Size)), 0),
    **dict.fromkeys(map(id, (collections.Counter, collections.OrderedDict, collections.deque)), 0),
    **dict.fromkeys(map(id, (collections.UserDict, collections.UserList)), 0),
    **dict.fromkeys(map(id, (array.array, collections.defaultdict)), 1),
}
_PLAIN: tuple[type[Any], ...] = (*_TEXTS, list, tuple, dict, set, frozenset)
_FINITE = (
    *_PLAIN,
    *(type(iter(each())) for each in _PLAIN),
    collections.deque,
    range,
    *map(type, (iter("é"), iter(range(0)), reversed([]), reversed({}))),
)

# Instances whose methods neither run code nor touch files.
_HARMLESS = (str, bytes, int, float, complex, list, tuple, dict, set, frozenset, re.Pattern)
# Names of methods of installed packages that read and write files, or run code.
_RISKY = re.compile(
    r"(from_|load|save|push|dump|to_?file|read|write|open|download|upload|exec|eval$|run|system|import|unlink|"
    r"remove|rename|replace|delete|chmod|mkdir|rmdir|touch|link|format|compile|trace|script|export|install)"
)


def _is_long(value: Any) -> bool:
    """Return whether a value is a range longer than any real one."""
    return isinstance(value, range) and max(abs(value.start), abs(value.stop)) > WIDEST


def _is_short(value: Any) -> bool:
    """Return whether a number is written out: ``1e9999999999`` as a fraction exhausts memory."""
    return isinstance(value, numbers.Real) or (isinstance(value, str) and "e" not in value.lower())


def _may_read(obj: Any, name: str) -> bool:
    """Return whether a pickle may read an attribute of an object; ``_may_return`` checks its value."""
    if is_dunder(name) and name != "__call__":
        return False
    if isinstance(obj, (types.ModuleType, types.FunctionType, PackageImporter, *_METHODS)):
        return False
    owner = obj if isinstance(obj, type) else type(obj)
    home = str(owner.__module__)
    if is_mangled(home) or owner in _HARMLESS:
        return True
    top = home.partition(".")[0]
    if top == "torch":
        return issubclass(owner, _TORCH_OWNERS) and name != "from_file"
    return top != "numpy" and not is_standard(top) and _RISKY.search(name) is None


def _may_return(obj: Any, name: str, value: Any) -> bool:
    """Return whether a pickle may have this method or class of an object."""
    owner = obj if isinstance(obj, type) else type(obj)
    if owner in _HARMLESS:
        return True
    maker = value.__func__ if isinstance(value, types.MethodType) else value
    home = getattr(maker, "__module__", None)
    if not isinstance(home, str):
        home = str(getattr(getattr(maker, "__objclass__", owner), "__module__", owner.__module__))
    top = home.partition(".")[0]
    if is_mangled(home):
        return True
    if top == "torch" or is_standard(top):
        return top == owner.__module__.partition(".")[0] or allows_name(home, str(maker.__name__))
    return top != "numpy" and _RISKY.search(name) is None


def _has_device(location: str) -> bool:
    """Return whether torch has a storage's device; GPUs differ between machines."""
    kind, _, number = location.partition(":")
    return kind != "cuda" or (number or "0") in map(str, range(torch.cuda.device_count()))


def _raised_by_pickle(error: BaseException) -> bool:
    """Return whether the pickle itself caused the error, and not code that it called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename in (pickle.__file__, __file__)
