"""Compiled modules that hold wherever they are copied to: no path, no time of their source."""

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
    """The contents of a ``.pyc``; None for what is no Python of this version, as in packages' tests.

    Python's own compiled file is taken where it is up to date: compiling all of torch takes a minute.

    Args:
        source: the file.
        name: what tracebacks call it if whoever imports it does not know its path.
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
    """The same for code that is compiled already."""
    return MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(source) + marshal.dumps(_renamed(code, name))


def _renamed(code: CodeType, name: str) -> CodeType:
    constants = tuple(_renamed(each, name) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=name, co_consts=constants)
