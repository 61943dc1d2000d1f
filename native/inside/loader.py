"""Gives a slot its private copies of extension modules.

The first Python code in a slot, compiled from this file by path and run before
any import: even ``typing`` is partly an extension module, and a stock one would
bind to the wrong libpython. So nothing but frozen and builtin modules here.
"""

import _frozen_importlib as _bootstrap
import _frozen_importlib_external as _external
import _imp

import _interpool

_RTLD_LOCAL = 0


def _create_module(self, spec):  # type: ignore[no-untyped-def]
    """Stands in for ``importlib.machinery.ExtensionFileLoader.create_module``."""
    try:
        copy = _interpool.load_library(self.path, _RTLD_LOCAL)
    except OSError as error:
        raise ImportError(str(error), name=spec.name, path=self.path) from error
    private = _bootstrap.ModuleSpec(spec.name, self, origin=copy)
    module = _bootstrap._call_with_frames_removed(  # type: ignore[attr-defined]
        _imp.create_dynamic, private
    )
    # Single-phase modules were told the copy's path; users look for data files
    # beside the original.
    module.__file__ = spec.origin
    return module


_external.ExtensionFileLoader.create_module = _create_module  # type: ignore[method-assign]
