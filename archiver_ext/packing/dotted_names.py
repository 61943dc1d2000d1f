"""Parts of dotted module names."""

from __future__ import annotations


def top_of(module: str) -> str:
    """Return the first part of a dotted name."""
    return module.partition(".")[0]


def with_parents(module: str) -> list[str]:
    """Return the prefixes of a dotted name, the shortest first: ``a``, ``a.b`` and ``a.b.c`` of ``a.b.c``."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
