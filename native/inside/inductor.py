"""Loads TorchInductor's generated libraries with the address that belongs to this interpreter.

While such a library loads, it reads the address of a function of libtorch_python from an environment variable
of the process. All interpreters share that variable, so it is set only while a library loads, and one library
loads at a time.
"""

from __future__ import annotations

import fcntl
import os
from importlib.machinery import ExtensionFileLoader
from typing import TYPE_CHECKING

from interpool.native.upstream.torch_private import INDUCTOR_ADDRESS

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    _Text = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def install() -> None:
    """Keep the variable in this interpreter's ``os.environ`` until a library loads."""
    stock_putenv = os.putenv
    create_module = ExtensionFileLoader.create_module

    def putenv(name: _Text, value: _Text, /) -> None:
        """Override of ``os.putenv``, which ``os.environ`` calls."""
        if os.fsdecode(name) != INDUCTOR_ADDRESS:
            stock_putenv(name, value)

    def create_with_address(self: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
        """Override of ``ExtensionFileLoader.create_module``."""
        address = os.environ.get(INDUCTOR_ADDRESS)
        if address is None:
            return create_module(self, spec)
        # The lock covers the whole process, because each interpreter opens the file itself.
        with open(__file__, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stock_putenv(INDUCTOR_ADDRESS, address)
            return create_module(self, spec)

    os.putenv = putenv
    ExtensionFileLoader.create_module = create_with_address  # type: ignore[method-assign]
