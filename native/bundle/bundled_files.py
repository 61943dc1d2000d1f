"""Chooses a bundle's files of site-packages: torch, named packages, and their requirements."""

from __future__ import annotations

import contextlib
import importlib.metadata
import sysconfig
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from interpool.native.pool.prepare import installed
from interpool.native.upstream.requirements import required_by
from interpool.native.upstream.unneeded_torch_files import FOR_RUNNING, NOT_FOR_RUNNING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from importlib.metadata import Distribution

# torch warns at each import without numpy.
_ALWAYS = ("torch", "numpy")
# They describe the environment of the installation.
_OF_INSTALLERS = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})


class Part(NamedTuple):
    """A file, and its name below site-packages."""

    source: Path
    name: str


class Chosen(NamedTuple):
    """The files for site-packages, and the versions of their distributions."""

    parts: list[Part]
    versions: dict[str, str]


def choose(imports: Sequence[str]) -> Chosen:
    """Return all files for these modules.

    Raises:
        ProvisioningError: a module is not installed.
    """
    owners = importlib.metadata.packages_distributions()
    named = {name.partition(".")[0]: installed(name) for name in imports}
    wanted = [*_ALWAYS, *(owner for top in named for owner in owners.get(top, []))]
    distributions = _with_requirements(wanted)
    parts = {part.name: part for each in distributions.values() for part in files_of(each)}
    sources = {part.source for part in parts.values()}
    for top, spec in named.items():
        if not _is_covered(spec, sources):  # installed from a working tree, or not installed
            parts.update((part.name, part) for part in _tree(top, spec))
    versions = {name: each.version for name, each in sorted(distributions.items())}
    return Chosen([parts[name] for name in sorted(parts)], versions)


def files_of(distribution: Distribution) -> Iterator[Part]:
    """Yield a distribution's files in site-packages that a bundle needs."""
    for file in distribution.files or ():
        if is_wanted(str(file)):
            path = Path(str(distribution.locate_file(file)))
            if path.is_file():
                yield Part(path, str(file))


def is_wanted(name: str) -> bool:
    """Return whether a bundle needs a file of site-packages with this name."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "__pycache__" in path.parts:
        return False
    if path.suffix in {".a", ".exe", ".pth", ".pyc"}:
        return False
    if path.parent.name.endswith(".dist-info") and path.name in _OF_INSTALLERS:
        return False
    return not name.startswith(NOT_FOR_RUNNING) or name in FOR_RUNNING


def _with_requirements(names: Sequence[str]) -> dict[str, Distribution]:
    """Return distributions with these names, and all their installed requirements."""
    from packaging.utils import canonicalize_name

    own = {"interpool"}  # a bundle always contains its part for interpreters
    found: dict[str, Distribution] = {}
    for name in {*map(canonicalize_name, names), *required_by(names, without=own)} - own:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # `pip check` reports it
            found[name] = importlib.metadata.distribution(name)
    return found


def _is_covered(spec: ModuleSpec, sources: set[Path]) -> bool:
    if not spec.has_location:  # builtin, frozen, or a package without an __init__.py
        folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
        return all(any(folder in source.parents for source in sources) for folder in folders)
    origin = Path(str(spec.origin))
    stdlib = Path(sysconfig.get_path("stdlib"))
    of_python = stdlib in origin.parents and not {"dist-packages", "site-packages"} & set(origin.parts)
    return origin in sources or of_python


def _tree(top: str, spec: ModuleSpec) -> Iterator[Part]:
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if not folders:
        yield Part(Path(str(spec.origin)), Path(str(spec.origin)).name)
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            name = f"{top}/{path.relative_to(folder)}"
            if path.is_file() and is_wanted(name):
                yield Part(path, name)
