"""Shares weights that each private interpreter has loaded by itself, for models without a hermetic archive.

Load a model like this::

    with sharing_loads(key):
        handler.initialize(context)
    shared = share_weights(key)

The first interpreter copies its weights into a file in memory, and maps them from there. Each later
interpreter maps equal weights from the same file and frees its own memory. All mappings are copy-on-write: no
other interpreter sees a write.

To move a tensor's memory, all users of its address must be known. So there are two ways:

- **TorchScript** weights are shared inside ``torch.jit.load``, before they have other users. Later, graph
  executors keep addresses, and the users are unknown.
- **All other weights** are shared after the model's initialization, which may write to them. A storage moves
  only if every reference to it is known (native/cpp/slot/references.h). It stays if a numpy array, a DLPack
  capsule, C++ code or a running function refers to it. It also stays if the model's code has called its
  ``data_ptr()``.

The model's own threads need not end first: their running functions refer to the tensors that they use.

These weights also stay: those smaller than a page, those mapped from files (``torch.load(mmap=True)``,
safetensors) and packed weights of quantized modules. Memory that is mostly zero, such as scratch space, stays
too. This costs memory only, and changes no answer.
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

# Libraries that compare addresses and do not keep them.
_COMPARING = frozenset({"accelerate", "diffusers", "peft", "safetensors", "torch", "transformers"})

logger = logging.getLogger(__name__)


class Sharing(NamedTuple):
    """The result of sharing a model's weights in this interpreter.

    Attributes:
        storages: the number of storages whose memory other interpreters share or can share.
        bytes: their size.
        private_storages: the number of storages that stay, because other code may know their address.
        private_bytes: their size.
        failure: why nothing was shared; "" if sharing worked.
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
                f"; {self.private_storages}, {self.private_bytes >> 20} MiB, are used by other code and stay"
            )
        return text


class _Loading:
    """State of one model's load: what was shared so far, and storages whose address is known elsewhere."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.storages = 0
        self.bytes = 0
        self.known: list[torch.UntypedStorage] = []  # kept, so that no other storage gets the address

    def add(self, shared: Sharing) -> None:
        self.storages += shared.storages
        self.bytes += shared.bytes


_loading: _Loading | None = None  # between entry and exit of sharing_loads; one at a time
_loaded: _Loading | None = None  # for the next share_weights


def install() -> None:
    """Override ``torch.jit.load``. Call once per interpreter, before any model can import it."""
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
    """Share what ``torch.jit.load`` loads during the block, and record storages whose address is requested.

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
    """Share this interpreter's weights with all interpreters that use the same key.

    Call it inside or after ``sharing_loads``, after ``initialize``, while no function of the model runs. It
    collects garbage, reads the whole heap, and reads each weight two or three times. While one interpreter
    publishes, others wait without their GIL; the wait can be interrupted.

    Args:
        key: the model's directory, or the directory followed by ``/`` or ``#`` and more. The pool's
            ``forget`` of the directory ends the sharing.

    Returns:
        The result, including ``torch.jit.load``. If memory or mappings run out, a warning is logged, and the
        model keeps its own memory.
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
    except Exception as error:  # noqa: BLE001 (TorchScript raises many types if it cannot expose a module)
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
    """Do nothing: the wait for another interpreter calls this, so that it can be interrupted."""


def _untyped(owner: torch.Tensor | torch.UntypedStorage | torch.TypedStorage) -> torch.UntypedStorage:
    if isinstance(owner, torch.UntypedStorage):
        return owner
    return owner.untyped() if isinstance(owner, torch.TypedStorage) else owner.untyped_storage()


def _note_addresses() -> Callable[[], None]:
    """Record storages whose address is requested; returns a function that ends this."""
    patched: list[Any] = [torch.Tensor, torch.UntypedStorage, torch.TypedStorage]
    own = {owner: vars(owner).get("data_ptr") for owner in patched}

    def noting(stock: Callable[[Any], int]) -> Callable[[Any], int]:
        @wraps(stock)
        def data_ptr(self: Any) -> int:
            address = stock(self)
            asked_by = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
            if _loading is not None and asked_by not in _COMPARING:
                with suppress(RuntimeError, NotImplementedError):  # tensors without a storage
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
