"""The host program's own torch, beside a pool.

Whichever comes first, the host's ``import torch`` or the pool, the router must
know of the host's libtorch_python before a slot's tensors and its own can meet.
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
    """Meanwhile, no other thread of the host is about to import torch.

    One that has looked for ``torch._C`` already would load the stock library beside a router that does
    not know of it.
    """
    with ExitStack() as held:
        # As in any circle of imports, this thread goes on if the other one waits for it.
        with suppress(RuntimeError):
            held.enter_context(ModuleLock("torch"))
        yield


def watch_host_torch(torch_lib: Path) -> None:
    """Tell the pool of the host's torch: now, when it is imported, else when it will be.

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
    """Loads a patched libtorch_python just before the host's ``torch._C`` wants the stock one.

    The stock library's initialisers would register with libtorch what the slots
    have registered, and end the process.
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
            # Not before: an import that fails may be tried again, and must not find the stock library.
            sys.meta_path.remove(self)
        return None
