"""Reads facts about third-party modules from their installed distributions."""

from __future__ import annotations

import csv
import json
import re
from functools import cache, cached_property, lru_cache
from importlib import metadata
from inspect import getmodulename
from pathlib import Path

from interpool.archiver_ext.packing.dotted_names import top_of, with_parents
from interpool.native.upstream.requirements import required_by

_BIG_FILES = 100
_BIG_BYTES = 1_000_000
_MANY_REQUIREMENTS = 8
# Patterns of code that looks itself up, or registers itself, outside of the archive.
_SELF_LOOKUPS = (
    (re.compile(rb"^def __getattr__\(|_LazyModule|lazy_loader", re.MULTILINE), "loads its modules lazily"),
    (re.compile(rb"sys\.modules\["), "looks itself up in sys.modules"),
    (re.compile(rb"sys\.meta_path\."), "changes how Python finds modules"),
    (re.compile(rb"torch\.library\b|TORCH_LIBRARY|load_inline\("), "registers torch operators"),
    (re.compile(rb"^@[\w.]*register", re.MULTILINE), "fills registries when it is imported"),
)
_NOT_DATA = (".py", ".pyi", ".pyc", "py.typed")


class Distribution:
    """Facts about an installed distribution.

    Args:
        found: the distribution.

    Attributes:
        name: of the distribution.
        version: of the distribution; "" if its metadata names none.
    """

    def __init__(self, found: metadata.Distribution) -> None:
        self.name: str = found.metadata["Name"]
        self.version = found.version if "Version" in found.metadata else ""
        self._found = found

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"

    @cached_property
    def from_index(self) -> bool:
        """Whether an index provides it by name and version.

        On an index, the name of a working tree or repository may mean another project.
        """
        # PEP 610. The older `setup.py develop` writes no RECORD.
        text = self._found.read_text("direct_url.json")
        if text is None:
            return self._found.read_text("RECORD") is not None or self._found.read_text("SOURCES.txt") is None
        return not {"dir_info", "vcs_info"}.intersection(json.loads(text))

    @property
    def python_files(self) -> int:
        """The number of its Python files."""
        return len(self._sources)

    @cached_property
    def obstacle(self) -> str:
        """Why it should not be packed, or ""."""
        compiled = next((str(path) for path in self._files if _is_compiled(path)), "")
        data_file = next((str(path) for path in self._files if _is_data(path)), "")
        return (
            (f"ships compiled code ({compiled})" if compiled else "")
            or _bigness(self._sources)
            or (f"ships data beside its code ({data_file})" if data_file else "")
            or _many_requirements(self.name)
            or _self_lookup(self._sources)
        )

    @cached_property
    def _files(self) -> list[metadata.PackagePath]:
        return [
            path
            for path in self._found.files or ()
            if ".." not in path.parts and not path.parts[0].endswith((".dist-info", ".egg-info"))
        ]

    @cached_property
    def _sources(self) -> list[metadata.PackagePath]:
        return [path for path in self._files if path.name.endswith(".py")]


def _is_compiled(path: metadata.PackagePath) -> bool:
    return path.name.endswith(".so") or ".so." in path.name


def _is_data(path: metadata.PackagePath) -> bool:
    return len(path.parts) > 1 and not path.name.endswith(_NOT_DATA) and not _is_compiled(path)


@lru_cache(maxsize=1)
def _providers() -> dict[str, list[metadata.Distribution]]:
    """Return the distributions of each top-level name.

    metadata.packages_distributions() parses the description of each, and looks for each file.
    """
    found: dict[str, list[metadata.Distribution]] = {}
    for each in metadata.distributions():
        declared = (each.read_text("top_level.txt") or "").split()
        for top in declared or _top_levels(each):
            found.setdefault(top, []).append(each)
    return found


def _top_levels(found: metadata.Distribution) -> set[str]:
    """Return the top-level names of a distribution that declares none."""
    record = found.read_text("RECORD")
    if record is None:
        files = list(map(str, found.files or ()))
    else:
        files = [row[0] for row in csv.reader(record.splitlines()) if row]
    firsts = {file.partition("/")[0] if "/" in file else getmodulename(file) or file for file in files}
    return {first for first in firsts if "." not in first}


@cache
def _names(top_level: str) -> list[str]:
    """Return the names of the distributions that have the top-level name, each once."""
    return sorted({each.metadata["Name"] for each in _providers().get(top_level, ())})


@cache
def distribution_of(module: str) -> Distribution | None:
    """Return the distribution that installs the module, or None.

    Several may share its top-level name, as in a namespace package. Then it is the one with a file of the
    module, or of its nearest parent package.
    """
    names = _names(top_of(module))
    if len(names) < 2:
        return _examine(names[0]) if names else None
    found = (name for each in reversed(with_parents(module)) for name in names if each in _modules_of(name))
    return _examine(next(found, names[0]))


@cache
def _modules_of(name: str) -> frozenset[str]:
    """Return all modules in the distribution's files, and their parent packages."""
    modules: set[str] = set()
    for file in metadata.distribution(name).files or ():
        modules.update(with_parents(".".join((*file.parts[:-1], file.name.partition(".")[0]))))
    return frozenset(modules)


def installs(top_level: str, path: Path) -> bool:
    """Return whether a distribution has installed the file or directory, according to pip's RECORD.

    The RECORD of an editable install lists only a pointer to the files.

    Args:
        top_level: name of the top-level module.
        path: of the file or directory, resolved.
    """
    return path in _recorded(top_level)


@cache
def _recorded(top_level: str) -> frozenset[Path]:
    """Return the files of a top-level module in RECORD, and their directories."""
    noted: set[Path] = set()
    for name in _names(top_level):
        found = metadata.distribution(name)
        files = found.files if found.read_text("RECORD") is not None else ()
        for file in files or ():
            if file.parts[0] in (top_level, f"{top_level}.py"):
                placed = Path(str(found.locate_file(file))).resolve()
                noted |= {placed, *placed.parents[: len(file.parts) - 1]}
    return frozenset(noted)


@cache
def _examine(name: str) -> Distribution:
    return Distribution(metadata.distribution(name))


def _bigness(sources: list[metadata.PackagePath]) -> str:
    """Return why it is too much code for an archive, or ""."""
    size = sum(path.size or 0 for path in sources)
    if len(sources) <= _BIG_FILES and size <= _BIG_BYTES:
        return ""
    return f"is big ({len(sources)} files, {size / 1e6:.1f} MB)"


def _many_requirements(name: str) -> str:
    needed = requirements(name) - requirements("torch") - {"torch", "numpy"}
    return f"needs {len(needed)} other distributions" if len(needed) > _MANY_REQUIREMENTS else ""


def _self_lookup(sources: list[metadata.PackagePath]) -> str:
    for path in sources:
        try:
            source = path.read_binary()
        except OSError:
            continue
        for pattern, why in _SELF_LOOKUPS:
            if pattern.search(source):
                return f"{why} ({path})"
    return ""


@cache
def requirements(name: str) -> frozenset[str]:
    """Return canonical names of all that a distribution requires on this machine, directly or not."""
    return frozenset(required_by([name]))
