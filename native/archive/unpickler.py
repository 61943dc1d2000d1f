"""Unpickles from an archive: tidy errors for damaged pickles, and no tensor reaches beyond its weights.

A pickle may name and call what it likes, as code in the archive may: a signature is the defence.
"""

from __future__ import annotations

import functools
import pickle
import re
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from interpool.native.archive import packed_weights
from interpool.native.archive.pickle_names import current_name
from interpool.native.archive.typed_json import shown
from interpool.native.errors import ArchiveError, PickleError
from interpool.native.upstream.attribute_names import intern_names, named_in
from interpool.native.upstream.torch_private import (
    DTYPE_ARGUMENT,
    QUANTIZED_LAYERS,
    REBUILD_TENSOR,
    REBUILDERS,
    REDUCED,
    PackageUnpickler,
    forget_fx_code,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.package import PackageImporter

_ADVICE = "If the model needs it, make it in code of the model's instead of pickling it"


def unpickle_checked(importer: PackageImporter, path: str) -> None:
    """Make ``importer.load_pickle`` raise PickleError for a damaged pickle, and check its tensors' bounds.

    Args:
        importer: changed in place; it keeps objects that it has unpickled already.
        path: the archive, for messages.
    """
    importer.Unpickler = functools.partial(_Unpickler, importer, path)


_PurePython: Any = PackageUnpickler  # pickle's pure Python class, which typeshed does not describe


class _Unpickler(_PurePython):  # type: ignore[misc]
    def __init__(self, importer: PackageImporter, path: str, file: Any, **kwargs: Any) -> None:
        super().__init__(importer, file, **kwargs)
        self._package = importer
        self._path = path
        self._size = len(file.getbuffer()) if hasattr(file, "getbuffer") else None
        self._globals: dict[int, Any] = {}  # global objects, by id

    def load(self) -> Any:
        """Return the object.

        Raises:
            PickleError: the pickle is damaged, or what it says of its weights is wrong.
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
        finally:
            forget_fx_code()

    def find_class(self, module: str, name: str) -> Any:
        """Return a global that a pickle names.

        Args:
            module: dotted name of the module, as the pickle writes it.
            name: of the global in it.

        Raises:
            PickleError: the module has no such name.
        """
        module, name = current_name(module, name, self.proto)
        if (module, name) == packed_weights.NAME:
            return packed_weights.PackedWeights
        found = self._package.import_module(module)
        if not hasattr(found, name):
            text = shown(f"{module}:{name}")[1:-1]
            self._refuse("missing-global", f"a pickle in it uses {text}, which does not exist. {_ADVICE}")
        value = getattr(found, name)
        self._globals[id(value)] = value
        if module == REBUILDERS and name in REBUILD_TENSOR:
            return functools.partial(self._rebuild, value)
        return value

    # Tensors.

    def _rebuild(self, function: Callable[..., Any], *args: Any) -> Any:
        """Make a tensor, if it lies within its weights; torch would extend them with uninitialized memory."""
        if len(args) >= 4 and isinstance(args[0], torch.storage.TypedStorage):
            self._check_tensor(function.__name__, args[0], args)
        return function(*args)

    def _check_tensor(self, function: str, storage: torch.storage.TypedStorage, args: Any) -> None:
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

    # States.

    def _load_build(self) -> None:
        target = self.stack[-2] if len(self.stack) >= 2 else None
        if isinstance(target, packed_weights.PackedWeights):
            self._fill_packed(target)
            return
        if isinstance(target, torch.nn.Module):
            if type(target).__module__.startswith(QUANTIZED_LAYERS):
                torch.nn.Module.__init__(target)  # states of convolutions lack these attributes
            self._intern_names(self.stack[-1])
        super().load_build()

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

    def _intern_names(self, state: Any) -> None:
        """Intern the names of a module's state, unless they are in a global, which other code uses."""
        if type(state) is dict and not any(id(each) in self._globals for each in named_in(state)):
            intern_names(state)

    # Persistent ids, and what claims bytes.

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
            good = good and callable(parts[-2]) and type(parts[-1]) is tuple
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

    def _refuse(self, rule: str, what: str, cause: BaseException | None = None) -> NoReturn:
        raise PickleError(f"{self._path}: {what}", rule) from cause


_OVERRIDES: dict[bytes, Callable[[_Unpickler], None]] = {
    pickle.BINPERSID: _Unpickler._load_binpersid,
    pickle.BUILD: _Unpickler._load_build,
    pickle.BYTEARRAY8: _Unpickler._load_bytearray8,
    pickle.PERSID: _Unpickler._load_persid,
}
_Unpickler.dispatch = {
    **PackageUnpickler.dispatch,
    **{code[0]: function for code, function in _OVERRIDES.items()},
}

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
