"""Weights that each private interpreter loaded for itself, in memory that they have in common.

For models that no hermetic archive brings. Run one model's loading as::

    with sharing_loads(key):
        handler.initialize(context)
    shared = share_weights(key)

The first interpreter that does so lays its weights down in a file in memory, and has them mapped from
there; in every later one, what is equal is mapped from the same file, and its own memory freed. All
mappings are copy-on-write: a write in one interpreter is invisible to the others, the first included.

What moves a tensor's memory must know everybody who has its address. So there are two ways:

- **TorchScript** is shared inside ``torch.jit.load``, right after it: its tensors have no other users
  yet. Later, graphs' executors keep addresses, and who refers to a tensor cannot be told any more.
- **Everything else** is shared after the model was initialized, as parameters are written to until
  then. A storage is moved if every reference to it is accounted for (native/cpp/slot/references.h).
  Where a numpy array, a DLPack capsule, C++ code or a running function refers to one, it stays.
  So does one whose ``data_ptr()`` the model's own code asked for: nobody can tell who keeps a number.

Threads that the model started need not end first: what they work with, their running functions refer to.

Left as they are, too: weights smaller than a page, mapped from files (``torch.load(mmap=True)``,
safetensors: those pages are shared already), quantized modules' packed weights, memory that is mostly
zero, as scratch space is. None of this changes an answer; it costs memory only.
"""

from __future__ import annotations

import gc
import logging
import sys
from contextlib import contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import _interpool
from interpool.native.upstream.torch_private import script_tensors, storage_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALLEST = 4096
"""Bytes of the smallest storage that is shared."""

# They ask for addresses to compare them, and keep none.
_COMPARING = frozenset({"accelerate", "diffusers", "peft", "safetensors", "torch", "transformers"})

logger = logging.getLogger(__name__)


class Sharing(NamedTuple):
    """What became of a model's weights in this interpreter.

    Attributes:
        storages: how many have memory that other interpreters have as well, or can have.
        bytes: of those.
        private_storages: how many were left alone, as somebody else may know their address.
        private_bytes: of those.
        failure: why nothing was shared; "" if it could be.
    """

    storages: int = 0
    bytes: int = 0
    private_storages: int = 0
    private_bytes: int = 0
    failure: str = ""

    def __str__(self) -> str:
        if self.failure:
            return self.failure
        text = f"{self.storages} weights, {self.bytes >> 20} MiB, are shared with other interpreters"
        if self.private_storages:
            text += (
                f"; {self.private_storages}, {self.private_bytes >> 20} MiB, are in use elsewhere, and stay"
            )
        return text


class _Loading:
    """A model on its way: what was shared so far, and storages whose address somebody has."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.storages = 0
        self.bytes = 0
        self.known: list[torch.UntypedStorage] = []  # held, so that no other gets its address

    def add(self, shared: Sharing) -> None:
        self.storages += shared.storages
        self.bytes += shared.bytes


_loading: _Loading | None = None  # what is between sharing_loads and its end; one at a time
_loaded: _Loading | None = None  # what share_weights goes on with


def install() -> None:
    """Stand in for ``torch.jit.load``. Once per interpreter, before anybody can have imported it."""
    stock: Callable[..., Any] = torch.jit.load

    @wraps(stock)
    def load(*args: Any, **kwargs: Any) -> Any:
        module = stock(*args, **kwargs)
        if _loading is not None:
            _loading.add(_share_script(_loading.key, module))
        return module

    torch.jit.load = load


@contextmanager
def sharing_loads(key: str) -> Iterator[None]:
    """While a model is loaded: share what ``torch.jit.load`` brings, and note whose address is asked for.

    Args:
        key: as for ``share_weights``.
    """
    global _loading, _loaded
    outer, _loading = _loading, _Loading(key)
    restore = _note_addresses()
    try:
        yield
    except BaseException:
        _loading = None
        raise
    finally:
        restore()
        _loading, _loaded = outer, _loading


def share_weights(key: str) -> Sharing:
    """Have this interpreter's weights in memory that those of others with the same key have, too.

    Call it where no function of the model's runs, after its ``initialize``; within ``sharing_loads`` or
    after it. It collects garbage, reads the whole heap, and each weight two or three times. While one
    interpreter publishes, the others wait, without their GIL; the wait can be interrupted.

    Args:
        key: of the model: its directory, or that, a ``/`` or ``#``, and more. The pool's ``forget`` of
            the directory ends it.

    Returns:
        What was shared, including what ``torch.jit.load`` brought. Where there is no memory or no room
        for another mapping, a warning is logged, and the model keeps memory of its own.
    """
    global _loaded
    loading = _loading or _loaded
    _loaded = None
    gc.collect()
    if loading is None or loading.key != key:
        return _share(key, None, ())
    shared = _share(key, None, loading.known)
    loading.known.clear()
    return shared._replace(storages=shared.storages + loading.storages, bytes=shared.bytes + loading.bytes)


def _share_script(key: str, module: Any) -> Sharing:
    try:
        tensors = script_tensors(module)
    except Exception as error:  # noqa: BLE001 (what it cannot show to Python, TorchScript says in many ways)
        logger.warning(
            "The TorchScript weights of %s are not shared, as they cannot be listed: %s", key, error
        )
        return Sharing()
    return _share(key, tensors, ())


def _share(key: str, tensors: list[torch.Tensor] | None, known: Any) -> Sharing:
    excluded = [storage_address(storage) for storage in known]
    try:
        return Sharing(*_interpool.share_storages(key, tensors, excluded, SMALLEST, _tick))
    except (OSError, MemoryError, RuntimeError) as error:
        failure = (
            f"the weights of {key} are not shared with other interpreters ({error}). The model is served all "
            "the same; each interpreter has a copy of its own. There must be memory for one more copy "
            "while they are loaded, and vm.max_map_count must allow for another mapping."
        )
        logger.warning("%s", failure)
        return Sharing(failure=failure)


def _tick() -> None:
    """Called while another interpreter is waited for: here, the wait can be interrupted."""


def _untyped(owner: torch.Tensor | torch.UntypedStorage | torch.TypedStorage) -> torch.UntypedStorage:
    if isinstance(owner, torch.UntypedStorage):
        return owner
    return owner.untyped() if isinstance(owner, torch.TypedStorage) else owner.untyped_storage()


def _note_addresses() -> Callable[[], None]:
    """Have those storages noted whose address is asked for; returns what ends that."""
    patched: list[Any] = [torch.Tensor, torch.UntypedStorage, torch.TypedStorage]
    own = {owner: vars(owner).get("data_ptr") for owner in patched}

    def noting(stock: Callable[[Any], int]) -> Callable[[Any], int]:
        @wraps(stock)
        def data_ptr(self: Any) -> int:
            address = stock(self)
            asked_by = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
            if _loading is not None and asked_by not in _COMPARING:
                with suppress(RuntimeError, NotImplementedError):  # it has no storage
                    _loading.known.append(_untyped(self))
            return address

        return data_ptr

    for owner in patched:
        owner.data_ptr = noting(owner.data_ptr)

    def restore() -> None:
        for owner, function in own.items():
            if function is None:
                del owner.data_ptr
            else:
                owner.data_ptr = function

    return restore
