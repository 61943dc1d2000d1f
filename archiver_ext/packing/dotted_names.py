"""Parts of modules' dotted names."""

from __future__ import annotations


def top_of(module: str) -> str:
    """The first part of a dotted name."""
    return module.partition(".")[0]


def with_parents(module: str) -> list[str]:
    """All that a dotted name begins with, the shortest first: ``a``, ``a.b`` and ``a.b.c`` of ``a.b.c``."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
