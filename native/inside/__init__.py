"""Code that runs only inside private interpreters.

Imports ``native.archive``, ``native.upstream``, ``native.directories`` and ``native.errors``. It never
imports the host's part of ``interpool.native``, because that would start a second pool: each interpreter has
its own copy of every compiled module.
"""

from __future__ import annotations


def interpreter_id() -> int | None:
    """This interpreter's number in its process (1, 2, ...); None outside of a pool."""
    try:
        import _interpool
    except ImportError:
        return None
    return _interpool.interpreter_id()
