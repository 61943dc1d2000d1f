"""Checks all private names and symbols of CPython and torch that interpool needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpool.native.upstream import cpython_private, torch_private, torch_symbols

if TYPE_CHECKING:
    from pathlib import Path


def check_all(interposer: Path) -> tuple[int, list[str]]:
    """Return the number of names and symbols, and the missing or changed ones. Imports torch.

    Args:
        interposer: interpool's library that looks up the symbols.

    Raises:
        ImportError: torch cannot be imported.
        OSError: torch cannot be imported.
    """
    problems = cpython_private.check() + torch_private.check()
    symbols = 0
    try:
        symbols, missing = torch_symbols.check(interposer)
        problems += missing
    except (ImportError, OSError) as error:
        problems.append(f"interpool's own library cannot be loaded: {error}")
    return len(cpython_private.NAMES) + len(torch_private.NAMES) + symbols, problems
