"""Compiles modules to ``.pyc`` files without paths or times, which stay valid when they are copied."""

from __future__ import annotations

import marshal
import sys
import warnings
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, source_hash
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_UNCHECKED_HASH = (1).to_bytes(4, "little")


def pyc_of(source: Path, name: str) -> bytes | None:
    """Return the contents of a ``.pyc``; None if the source is invalid in this Python, as in packages' tests.

    An up-to-date ``.pyc`` of Python is reused, because compiling all of torch takes a minute.

    Args:
        source: the file.
        name: its name in tracebacks, if the importer does not know its path.
    """
    kept = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = SourceFileLoader("_", str(source)).get_code("_")
    except (SyntaxError, ValueError):
        return None
    finally:
        sys.dont_write_bytecode = kept
    return make_pyc(code, source.read_bytes(), name) if code is not None else None


def make_pyc(code: CodeType, source: bytes, name: str) -> bytes:
    """Return the contents of a ``.pyc`` for compiled code.

    Args:
        code: the code.
        source: its source, for the hash.
        name: its name in tracebacks.
    """
    return MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(source) + marshal.dumps(_renamed(code, name))


def _renamed(code: CodeType, name: str) -> CodeType:
    constants = tuple(_renamed(each, name) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=name, co_consts=constants)
