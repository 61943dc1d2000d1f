"""Gives a slot its private copies of extension modules.

This is the first Python code that runs in a slot, compiled from its path, before any import. It may use only
frozen and builtin modules: a stock extension module would bind to the wrong libpython.
"""

import _frozen_importlib as _bootstrap
import _frozen_importlib_external as _external
import _imp

import _interpool

_RTLD_LOCAL = 0


def _create_module(self, spec):  # type: ignore[no-untyped-def]
    """Override of ``importlib.machinery.ExtensionFileLoader.create_module``."""
    try:
        copy = _interpool.load_library(self.path, _RTLD_LOCAL)
    except OSError as error:
        raise ImportError(str(error), name=spec.name, path=self.path) from error
    private = _bootstrap.ModuleSpec(spec.name, self, origin=copy)
    module = _bootstrap._call_with_frames_removed(  # type: ignore[attr-defined]
        _imp.create_dynamic, private
    )
    # Modules look for data files beside the original, but single-phase modules have the path of the copy.
    module.__file__ = spec.origin
    return module


_external.ExtensionFileLoader.create_module = _create_module  # type: ignore[method-assign]
