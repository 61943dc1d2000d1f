"""All private names and symbols of CPython's and torch's that interpool needs, asked for at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpool.native.upstream import cpython_private, torch_private, torch_symbols

if TYPE_CHECKING:
    from pathlib import Path


def check_all(interposer: Path) -> tuple[int, list[str]]:
    """How many there are, and what is gone or changed of them. Imports torch.

    Args:
        interposer: interpool's library that looks up the symbols.

    Raises:
        ImportError: there is no torch, or it cannot be imported.
        OSError: the same.
    """
    problems = cpython_private.check() + torch_private.check()
    symbols = 0
    try:
        symbols, missing = torch_symbols.check(interposer)
        problems += missing
    except (ImportError, OSError) as error:
        problems.append(f"interpool's own library cannot be loaded: {error}")
    return len(cpython_private.NAMES) + len(torch_private.NAMES) + symbols, problems
