"""What is done with each module, and why.

The user's globs come first: of several that match, the first of deny, mock, extern, intern
decides. Then come decisions: a plan's, or what a trial load taught. Then the rules: the
project's own files go in; torch, numpy and the standard library stay outside; of the rest,
what is in use goes in if it is small and pure Python and stays outside if not, and what is
imported and never runs is mocked.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packaging.utils import canonicalize_name

from interpool.archiver_ext.packing.decide.distributions import distribution_of, required_by
from interpool.archiver_ext.packing.decide.working_trees import WorkingTrees
from interpool.archiver_ext.packing.dotted_names import top_of, with_parents
from interpool.native.archive.format import Origin
from interpool.native.upstream.torch_private import GlobGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from interpool.archiver_ext.packing.decide.distributions import Distribution
    from interpool.archiver_ext.packing.plan import Proposal
    from interpool.native.archive.format import Action

RuleAction = Literal["intern", "extern", "mock", "deny"]

_ALWAYS_THERE = ("torch", "numpy")


@dataclass(frozen=True)
class Globs:
    """The user's patterns, in torch.package's syntax (``einops.**``)."""

    intern: tuple[str, ...] = ()
    extern: tuple[str, ...] = ()
    mock: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What is done with one module, and why.

    Attributes:
        action: what is done.
        reason: why, in words.
        origin: who decided.
        glob: the modules that share it, if the user may want to change the decision, else "".
    """

    action: RuleAction
    reason: str
    origin: Origin
    glob: str = field(default="", compare=False)

    @property
    def where(self) -> str:
        """Where the user has written it, if it is the user's or a plan's."""
        if self.origin is Origin.USER:
            return f"--{self.action} {self.glob}"
        return f"the plan's [{self.action}] {self.glob}"


@dataclass(frozen=True)
class Usage:
    """What was seen of third-party modules, by top-level name; see Calls in observe/calls.py.

    Attributes:
        ran: code that ran on the example inputs; None if there were none.
        called: called while the project's modules were imported, with the project's line.
        used: of which more than stand-ins is used then, with the project's line.
        pickled: its classes or functions are in the pickle.
        needed: what a trial load could not do without, and why; by package, as Rules.package_of has it.
    """

    ran: frozenset[str] | None = None
    called: Mapping[str, str] = field(default_factory=dict)
    used: Mapping[str, str] = field(default_factory=dict)
    pickled: frozenset[str] = frozenset()
    needed: Mapping[str, str] = field(default_factory=dict)

    def of(self, package: str) -> str | None:
        """How the package is used; None if it is not; "" if nobody knows."""
        top = top_of(package)
        if top in self.pickled:
            return "the model holds objects of it"
        if self.ran is not None and top in self.ran:
            return "it ran on the example inputs"
        if top in self.called:
            return f"it is called at import ({self.called[top]})"
        if top in self.used:
            return f"it is used at import ({self.used[top]})"
        if package in self.needed:
            return self.needed[package]
        return "" if self.ran is None else None


@dataclass
class Rules:
    """The rules for one project.

    Attributes:
        root: directory, resolved, whose files are the user's own.
        globs: the user's patterns.
        decisions: a plan's or a trial's, for what no pattern of the user's matches.
        usage: what is known of third-party modules.
        trees: the user's own files: the project's, and what lies in working trees.
    """

    root: Path
    globs: Globs = field(default_factory=Globs)
    decisions: Sequence[Proposal] = ()
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self.trees = WorkingTrees(self.root)
        self._groups = [
            (Verdict(action, f"--{action} {glob}", Origin.USER, glob), GlobGroup(glob))
            for action, globs in self._ordered()
            for glob in globs
        ]
        self._groups += [
            (Verdict(each.action, each.reason, each.origin, each.glob), GlobGroup(each.glob))
            for each in self.decisions
        ]

    def _ordered(self) -> list[tuple[RuleAction, Sequence[str]]]:
        globs = self.globs
        return [
            ("deny", globs.deny),
            ("mock", globs.mock),
            ("extern", globs.extern),
            ("intern", globs.intern),
        ]

    def unused(self, modules: Iterable[str]) -> list[Verdict]:
        """Decisions that match none of the modules. A denial need not."""
        met = list(modules)
        return [
            verdict
            for verdict, group in self._groups
            if verdict.action != "deny" and not any(map(group.matches, met))
        ]

    def verdict(self, module: str) -> Verdict:
        """The verdict for a dotted module name. May import the module's parents."""
        for verdict, group in self._groups:
            if group.matches(module):
                return verdict
        top = top_of(module)
        if top == "interpool":
            return Verdict("extern", "part of the server", Origin.SERVER)
        if top == "__main__":
            return Verdict("extern", "the program that runs the model, whichever", Origin.SERVER)
        places = _nearest_places(module)
        if any(map(self.trees.in_project, places)):
            return Verdict("intern", "in the project", Origin.PROJECT)
        if top in sys.stdlib_module_names or top in sys.builtin_module_names:
            return Verdict("extern", "standard library", Origin.STANDARD_LIBRARY)
        if top in _ALWAYS_THERE:
            return Verdict("extern", "every server has it", Origin.SERVER)
        if any(self.trees.elsewhere(top, place) for place in places):
            return Verdict("intern", "in a working tree, so it is the project's code too", Origin.PROJECT)
        package = self.package_of(module)
        return _third_party(package, bool(places), self.usage.of(package))

    def package_of(self, module: str) -> str:
        """The part of a module's name that decisions are about; "" if the module is the user's.

        It is the top-level name. In a package that is the user's, too, as a namespace package may be,
        it goes on to the first part that is not.
        """
        return next((name for name in with_parents(module) if not self._is_own(name)), "")

    def _is_own(self, module: str) -> bool:
        top = top_of(module)
        return any(
            self.trees.in_project(place) or self.trees.elsewhere(top, place)
            for place in _nearest_places(module)
        )


def module_file(module: str) -> Path | None:
    """The file that a module was, or would be, loaded from; a namespace package's directory."""
    return next(iter(_places(module)), None)


def _nearest_places(module: str) -> list[Path]:
    """The places of a module or, as code may have made it, of the nearest package around it that has any."""
    found = map(_places, reversed(with_parents(module)))
    return next((places for places in found if places), [])


def _places(module: str) -> list[Path]:
    """The file that a module was, or would be, loaded from; all directories of a namespace package."""
    loaded = sys.modules.get(module)
    spec = getattr(loaded, "__spec__", None)
    if loaded is None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, AttributeError, ValueError):
            return []
    origin = getattr(loaded, "__file__", None) or (spec.origin if spec is not None else None)
    if origin is not None and origin not in ("built-in", "frozen"):
        return [Path(origin)]
    return [Path(each) for each in spec.submodule_search_locations or ()] if spec is not None else []


def _third_party(package: str, is_file: bool, used: str | None) -> Verdict:
    found = distribution_of(package)
    if found is not None and found.name == "torch":
        return Verdict("extern", "ships with torch, so every server has it", Origin.SERVER)
    if found is not None and canonicalize_name(found.name) in required_by("torch"):
        return Verdict("extern", f"{found.label}: torch needs it, so every server has it", Origin.SERVER)
    return Verdict(*_action(package, is_file, found, used), Origin.RULES, f"{package}.**")


def _action(package: str, is_file: bool, found: Distribution | None, used: str | None) -> tuple[Action, str]:
    label = found.label if found is not None else package
    if used is None:
        return "mock", f"{label} never ran on the example inputs: what needs it will fail"
    why = f"; {used}" if used else ""
    if found is None:
        if not is_file:
            return "extern", f"it has no source file{why}"
        return "intern", f"no installed distribution provides it{why}"
    if found.obstacle:
        return "extern", f"{label} {found.obstacle}{why}"
    return "intern", f"{label} is small and pure Python ({found.python_files} files){why}"
