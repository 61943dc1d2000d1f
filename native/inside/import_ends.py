"""Notices when a library's import has ended that was part of no other library's import."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from interpool.native.upstream.cpython_private import replace_load

_depth = threading.local()  # imports of libraries that the thread is in, as ``count``


def notice(on_end: Callable[[], None]) -> None:
    """Have a function called at the end of each such import, on the importing thread.

    A model's own modules do not count: what they import is the library. Call once per interpreter.
    """

    def replacement(stock: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def load(spec: Any) -> Any:
            if getattr(spec.loader, "scope", None) is not None:  # of a model; see module_scope.py
                return stock(spec)
            count = getattr(_depth, "count", 0)
            _depth.count = count + 1
            try:
                return stock(spec)
            finally:
                _depth.count = count
                if not count:
                    with suppress(Exception):  # the import has not failed
                        on_end()

        return load

    replace_load(replacement)
