"""What the installed distributions say about third-party modules."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from interpool.archiver_ext.packing.dotted_names import top_of, with_parents

_BIG_FILES = 100
_BIG_BYTES = 1_000_000
_MANY_REQUIREMENTS = 8
# What code that looks itself up, or registers itself, outside of any archive looks like.
_SELF_LOOKUPS = (
    (re.compile(rb"^def __getattr__\(|_LazyModule|lazy_loader", re.MULTILINE), "loads its modules lazily"),
    (re.compile(rb"sys\.modules\["), "looks itself up in sys.modules"),
    (re.compile(rb"torch\.library\b|TORCH_LIBRARY|load_inline\("), "registers torch operators"),
    (re.compile(rb"^@[\w.]*register", re.MULTILINE), "fills registries when it is imported"),
)
_NOT_DATA = (".py", ".pyi", ".pyc", "py.typed")


@dataclass(frozen=True)
class Distribution:
    """An installed distribution, as far as packing cares.

    Attributes:
        obstacle: why it had better stay outside of archives, or "".
        python_files: how many it has.
        from_index: whether its name and version are enough to install it; a working tree's or a
            repository's may be somebody else's there.
    """

    name: str
    version: str
    obstacle: str
    python_files: int
    from_index: bool = True

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"


@lru_cache(maxsize=1)
def _providers() -> dict[str, list[str]]:
    return {top: sorted(set(names)) for top, names in metadata.packages_distributions().items()}


@cache
def distribution_of(module: str) -> Distribution | None:
    """The distribution that installs the module, or None.

    Of several that share its top-level name, as a namespace package's do, the one with a file of the
    module's, or else of the nearest package around it.
    """
    names = _providers().get(top_of(module), [])
    if len(names) < 2:
        return _examine(names[0]) if names else None
    found = (name for each in reversed(with_parents(module)) for name in names if each in _modules_of(name))
    return _examine(next(found, names[0]))


@cache
def _modules_of(name: str) -> frozenset[str]:
    """What the distribution's files may be imported as, and all packages around that."""
    modules: set[str] = set()
    for file in metadata.distribution(name).files or ():
        modules.update(with_parents(".".join((*file.parts[:-1], file.name.partition(".")[0]))))
    return frozenset(modules)


def installs(top_level: str, path: Path) -> bool:
    """Whether a distribution has put the file, or directory, where it is: pip noted it in a RECORD.

    Of an editable install it notes a pointer to the files only.
    """
    return path in _recorded(top_level)


@cache
def _recorded(top_level: str) -> frozenset[Path]:
    """The files below a top-level name that pip noted, and their directories."""
    noted: set[Path] = set()
    for name in _providers().get(top_level, ()):
        found = metadata.distribution(name)
        files = found.files if found.read_text("RECORD") is not None else ()
        for file in files or ():
            if file.parts[0] in (top_level, f"{top_level}.py"):
                placed = Path(str(found.locate_file(file))).resolve()
                noted |= {placed, *placed.parents[: len(file.parts) - 1]}
    return frozenset(noted)


@cache
def _examine(name: str) -> Distribution:
    found = metadata.distribution(name)
    compiled = data_file = ""
    sources = []
    for path in found.files or ():
        if ".." in path.parts or path.parts[0].endswith((".dist-info", ".egg-info")):
            continue
        if path.name.endswith(".so") or ".so." in path.name:
            compiled = compiled or str(path)
        elif path.name.endswith(".py"):
            sources.append(path)
        elif not path.name.endswith(_NOT_DATA) and len(path.parts) > 1:
            data_file = data_file or str(path)
    obstacle = (
        (f"ships compiled code ({compiled})" if compiled else "")
        or _bigness(sources)
        or (f"ships data beside its code ({data_file})" if data_file else "")
        or _requirements(name)
        or _self_lookup(sources)
    )
    return Distribution(found.metadata["Name"], found.version, obstacle, len(sources), _from_index(found))


def _from_index(found: metadata.Distribution) -> bool:
    # PEP 610. `setup.py develop`, which is older, makes no RECORD.
    text = found.read_text("direct_url.json")
    if text is None:
        return found.read_text("RECORD") is not None or found.read_text("SOURCES.txt") is None
    return not {"dir_info", "vcs_info"}.intersection(json.loads(text))


def _bigness(sources: list[metadata.PackagePath]) -> str:
    """Why it is too much code to carry along in an archive, or ""."""
    size = sum(path.size or 0 for path in sources)
    if len(sources) <= _BIG_FILES and size <= _BIG_BYTES:
        return ""
    return f"is big ({len(sources)} files, {size / 1e6:.1f} MB)"


def _requirements(name: str) -> str:
    needed = required_by(name) - required_by("torch") - {"torch", "numpy"}
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
def required_by(name: str) -> frozenset[str]:
    """Canonical names of all that the distribution needs on this machine, however indirectly.

    What only its extras need is left out.
    """
    needed: set[str] = set()
    done: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(name), "")]
    while waiting:
        asked = waiting.pop()
        if asked in done:
            continue
        done.add(asked)
        for requirement in _requirements_of(*asked):
            found = canonicalize_name(requirement.name)
            needed.add(found)
            waiting += [(found, extra) for extra in ("", *requirement.extras)]
    return frozenset(needed)


def _requirements_of(name: str, extra: str) -> list[Requirement]:
    """What a distribution requires directly, with one of its extras or, for "", with none."""
    try:
        texts = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    stated = []
    for text in texts:
        # Distributions from before the syntax was settled have lines such as foo>=1.0.* beside good ones.
        with contextlib.suppress(InvalidRequirement):
            stated.append(Requirement(text))
    return [each for each in stated if each.marker is None or each.marker.evaluate({"extra": extra})]
