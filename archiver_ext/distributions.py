"""What the installed distributions say about third-party modules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata

_BIG_FILES = 100
_BIG_BYTES = 1_000_000
_NOT_DATA = (".py", ".pyi", ".pyc", "py.typed")


@dataclass(frozen=True)
class Distribution:
    """An installed distribution, as far as packing cares."""

    name: str
    version: str
    compiled: str
    """One of its shared objects, or ""."""
    data_file: str
    """One of the files that lie beside its code and are not code, or ""."""
    python_files: int
    python_bytes: int

    @property
    def is_big(self) -> bool:
        """Whether it is too much code to carry along in an archive."""
        return self.python_files > _BIG_FILES or self.python_bytes > _BIG_BYTES


@lru_cache(maxsize=1)
def _providers() -> dict[str, list[str]]:
    return {top: sorted(set(names)) for top, names in metadata.packages_distributions().items()}


@cache
def distribution_of(top_level: str) -> Distribution | None:
    """The distribution that installs the top-level module, or None."""
    names = _providers().get(top_level)
    return _examine(names[0]) if names else None


@cache
def _examine(name: str) -> Distribution:
    found = metadata.distribution(name)
    compiled = data_file = ""
    files = size = 0
    for path in found.files or ():
        if ".." in path.parts or path.parts[0].endswith((".dist-info", ".egg-info")):
            continue
        if path.name.endswith(".so") or ".so." in path.name:
            compiled = compiled or str(path)
        elif path.name.endswith(".py"):
            files += 1
            size += path.size or 0
        elif not path.name.endswith(_NOT_DATA) and len(path.parts) > 1:
            data_file = data_file or str(path)
    return Distribution(found.metadata["Name"], found.version, compiled, data_file, files, size)


def canonical(name: str) -> str:
    """A distribution's name in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def required_by(name: str) -> frozenset[str]:
    """Canonical names of all that the distribution needs, however indirectly.

    What only its extras need is left out.
    """
    needed: set[str] = set()
    waiting = [canonical(name)]
    while waiting:
        try:
            requirements = metadata.requires(waiting.pop()) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in requirements:
            match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement)
            if match is None or re.search(r"extra\s*==", requirement):
                continue
            found = canonical(match.group())
            if found not in needed:
                needed.add(found)
                waiting.append(found)
    return frozenset(needed)
