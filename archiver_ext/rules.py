"""What is done with each module, and why: the project's first-cut rules.

A module that several of the user's globs match takes the first of deny, mock,
extern, intern. Without a glob the module's own file decides.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from torch.package.glob_group import GlobGroup

from interpool.archiver_ext.distributions import canonical, distribution_of, required_by

if TYPE_CHECKING:
    from collections.abc import Sequence

RuleAction = Literal["intern", "extern", "mock", "deny"]

IN_PROJECT = "in the project"
STANDARD_LIBRARY = "standard library"

_ALWAYS_THERE = ("torch", "numpy")
_INSTALLED_DIRECTORIES = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class Globs:
    """The user's patterns, in torch.package's syntax (``einops.**``)."""

    intern: tuple[str, ...] = ()
    extern: tuple[str, ...] = ()
    mock: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What is done with one module, and why."""

    action: RuleAction
    reason: str


@dataclass
class Rules:
    """The rules for one project.

    Attributes:
        root: directory, resolved, whose files are the user's own.
        globs: the user's patterns.
    """

    root: Path
    globs: Globs = field(default_factory=Globs)

    def __post_init__(self) -> None:
        self._groups: list[tuple[RuleAction, str, GlobGroup]] = [
            (action, f"--{action} {glob}", GlobGroup(glob))
            for action, globs in self._ordered()
            for glob in globs
        ]

    def _ordered(self) -> list[tuple[RuleAction, Sequence[str]]]:
        globs = self.globs
        return [
            ("deny", globs.deny),
            ("mock", globs.mock),
            ("extern", globs.extern),
            ("intern", globs.intern),
        ]

    def verdict(self, module: str) -> Verdict:
        """The verdict for a dotted module name. May import the module's parents."""
        for action, reason, group in self._groups:
            if group.matches(module):
                return Verdict(action, reason)
        top = module.partition(".")[0]
        if top == "interpool":
            return Verdict("extern", "part of the server")
        path = module_file(module) or module_file(top)
        if path is not None and self.is_own(path):
            return Verdict("intern", IN_PROJECT)
        if top in sys.stdlib_module_names or top in sys.builtin_module_names:
            return Verdict("extern", STANDARD_LIBRARY)
        if top in _ALWAYS_THERE:
            return Verdict("extern", "every server has it")
        return _third_party(top, path)

    def is_own(self, path: Path) -> bool:
        """Whether a file is the user's: under the root, but not installed there."""
        try:
            relative = path.resolve().relative_to(self.root)
        except ValueError:
            return False
        return not _INSTALLED_DIRECTORIES.intersection(relative.parts)


def module_file(module: str) -> Path | None:
    """The file that a module was, or would be, loaded from; a namespace package's directory."""
    loaded = sys.modules.get(module)
    spec = getattr(loaded, "__spec__", None)
    if loaded is None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, AttributeError, ValueError):
            return None
    origin = getattr(loaded, "__file__", None) or (spec.origin if spec is not None else None)
    if origin is not None and origin not in ("built-in", "frozen"):
        return Path(origin)
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(locations[0]) if locations else None


def _third_party(top: str, path: Path | None) -> Verdict:
    found = distribution_of(top)
    if found is None:
        if path is None:
            return Verdict("extern", "it has no source file")
        return Verdict("intern", "no installed distribution brings it")
    label = f"{found.name} {found.version}"
    if canonical(found.name) in required_by("torch"):
        return Verdict("extern", f"{label}: torch needs it, so every server has it")
    if found.compiled:
        return Verdict("extern", f"{label} ships compiled code ({found.compiled})")
    if found.is_big:
        return Verdict(
            "extern",
            f"{label} is big ({found.python_files} files, {found.python_bytes / 1e6:.1f} MB)",
        )
    if found.data_file:
        return Verdict("extern", f"{label} ships data beside its code ({found.data_file})")
    return Verdict("intern", f"{label} is small and pure Python ({found.python_files} files)")
