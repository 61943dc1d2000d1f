"""Adds the host program's own torch to a pool.

The host may import torch before or after it starts the pool. The router must know the host's libtorch_python
before tensors of a slot and of the host can meet.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager, suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.native.upstream.cpython_private import ModuleLock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


@contextmanager
def without_torch_imports() -> Iterator[None]:
    """Block other threads of the host from importing torch during the block.

    A thread that has found ``torch._C`` already would load the stock library without the router's knowledge.
    """
    with ExitStack() as held:
        # As in any circular import, this thread continues if the other one waits for it.
        with suppress(RuntimeError):
            held.enter_context(ModuleLock("torch"))
        yield


def watch_host_torch(torch_lib: Path) -> None:
    """Register the host's torch with the pool: now if it is imported, otherwise when it is imported.

    Args:
        torch_lib: the folder of libtorch_python.so.
    """
    stock = torch_lib / "libtorch_python.so"
    if "torch._C" in sys.modules:
        from interpool.native import _native

        _native.adopt_host_torch(str(stock))
    else:
        sys.meta_path.insert(0, _HostTorchFinder(stock))


class _HostTorchFinder(MetaPathFinder):
    """Loads a patched libtorch_python before the host's ``torch._C`` loads the stock one.

    The stock library's initializers would repeat the slots' registrations with libtorch, which ends the
    process.
    """

    def __init__(self, stock: Path) -> None:
        self._stock = stock

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torch._C":
            import ctypes

            from interpool.native import _native
            from interpool.native.provision import host_copy
            from interpool.native.upstream.torch_private import allow_import_again

            try:
                copy = host_copy(str(self._stock))
                ctypes.CDLL(copy, mode=ctypes.RTLD_LOCAL)
            except BaseException:
                allow_import_again()
                raise
            _native.adopt_host_torch(copy)
            # Remove it last: a failed import may be repeated, and must not load the stock library.
            sys.meta_path.remove(self)
        return None
