"""Decides the action for each module, and gives the reason.

The user's globs come first: the first match of deny, mock, extern, intern decides. Then come decisions of a
plan or of trial loads. Then the rules apply. The project's own files are interned. torch, numpy and the
standard library are extern. Other packages in use are interned if they are small and pure Python, and no
extern package requires them, otherwise extern. Packages that are imported and never run are mocked.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from packaging.utils import canonicalize_name

from interpool.archiver_ext.packing.decide.distributions import distribution_of, requirements
from interpool.archiver_ext.packing.decide.working_trees import WorkingTrees
from interpool.archiver_ext.packing.dotted_names import top_of, with_parents
from interpool.native.archive.format import Origin
from interpool.native.upstream.torch_private import GlobGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from interpool.archiver_ext.packing.decide.distributions import Distribution
    from interpool.archiver_ext.packing.plan import Proposal
    from interpool.native.archive.format import Action

# In the order in which the user's globs decide.
RuleAction = Literal["deny", "mock", "extern", "intern"]

_ALWAYS_THERE = ("torch", "numpy")


@dataclass(frozen=True)
class Verdict:
    """The decision about one module.

    Attributes:
        action: the action.
        reason: the reason, in words.
        origin: the source of the decision.
        glob: matches the modules with the same decision; "" if the user should not change it.
    """

    action: RuleAction
    reason: str
    origin: Origin
    glob: str = field(default="", compare=False)

    @property
    def where(self) -> str:
        """The option or the plan's line that decided."""
        if self.origin is Origin.USER:
            return f"--{self.action} {self.glob}"
        return f"the plan's [{self.action}] {self.glob}"


@dataclass(frozen=True)
class Usage:
    """Observed uses of third-party modules, by top-level name; see Calls in observe/calls.py.

    Attributes:
        ran: modules whose code ran on the example inputs; None without inputs.
        called: modules called while the project's modules were imported, with the project's line.
        used: modules of which that import uses more than a mock provides, with the project's line.
        pickled: modules whose classes or functions are in the pickle.
        needed: packages that a trial load needed, and why, as in Rules.package_of.
    """

    ran: frozenset[str] | None = None
    called: Mapping[str, str] = field(default_factory=dict)
    used: Mapping[str, str] = field(default_factory=dict)
    pickled: frozenset[str] = frozenset()
    needed: Mapping[str, str] = field(default_factory=dict)

    def of(self, package: str) -> str | None:
        """Describe how the package is used; None if it is not, "" if unknown."""
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

    def tops(self) -> set[str]:
        """Return the top-level names of all modules that are used."""
        return {*self.pickled, *(self.ran or ()), *self.called, *self.used, *map(top_of, self.needed)}


@dataclass
class Rules:
    """The rules for one project.

    Attributes:
        root: resolved directory of the user's own files.
        globs: the user's patterns by action, in torch.package's syntax (``einops.**``).
        decisions: of a plan or trials, for modules that match no pattern.
        usage: observed uses of third-party modules.
        trees: the user's own files, in the project and in working trees.
    """

    root: Path
    globs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    decisions: Sequence[Proposal] = ()
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self.trees = WorkingTrees(self.root)
        self._groups = [
            (Verdict(action, f"--{action} {glob}", Origin.USER, glob), GlobGroup(glob))
            for action in get_args(RuleAction)
            for glob in self.globs.get(action, ())
        ]
        self._groups += [
            (Verdict(each.action, each.reason, each.origin, each.glob), GlobGroup(each.glob))
            for each in self.decisions
        ]

    def unused(self, modules: Iterable[str]) -> list[Verdict]:
        """Return decisions that match none of the modules, except denials."""
        met = list(modules)
        return [
            verdict
            for verdict, group in self._groups
            if verdict.action != "deny" and not any(map(group.matches, met))
        ]

    def verdict(self, module: str) -> Verdict:
        """Return the verdict for a dotted module name. May import the module's parents."""
        if (decided := self._decided(module)) is not None:
            return decided
        top = top_of(module)
        if top == "interpool":
            return Verdict("extern", "part of the server", Origin.SERVER)
        if top == "__main__":
            return Verdict("extern", "the program that runs the model", Origin.SERVER)
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
        verdict = _third_party(package, bool(places), self.usage.of(package))
        if verdict.action == "intern" and (needing := self._needing(package)):
            why = f"{needing} is taken from the server and needs it: both must have the same classes"
            return replace(verdict, action="extern", reason=why)
        return verdict

    def _needing(self, package: str) -> str:
        """Return a distribution in use that is taken from the server and requires the package, or ""."""
        needed = distribution_of(package)
        if needed is None:
            return ""
        for top in sorted(self.usage.tops() - {"interpool"}):
            other = None if self._is_own(top) else distribution_of(top)
            if other is not None and canonicalize_name(needed.name) in requirements(other.name):
                decided = self._decided(top)
                if other.obstacle if decided is None else decided.action == "extern":
                    return other.label
        return ""

    def _decided(self, module: str) -> Verdict | None:
        """Return the decision of a glob, the plan or a trial, or None."""
        return next((verdict for verdict, group in self._groups if group.matches(module)), None)

    def package_of(self, module: str) -> str:
        """Return the package to which a decision about a module applies; "" if the module is the user's.

        It is the top-level name. If that package contains modules of the user, as a namespace package may, it
        is the first parent that contains none.
        """
        return next((name for name in with_parents(module) if not self._is_own(name)), "")

    def is_on_every_server(self, top: str) -> bool:
        """Return whether every server has a top-level module, also if it is in a working tree here."""
        there = {*sys.stdlib_module_names, *_ALWAYS_THERE, "interpool"}
        return top in there or _third_party(top, True, None).origin is Origin.SERVER

    def _is_own(self, module: str) -> bool:
        top = top_of(module)
        return any(
            self.trees.in_project(place) or self.trees.elsewhere(top, place)
            for place in _nearest_places(module)
        )


def module_file(module: str) -> Path | None:
    """Return a module's file, loaded or not; for a namespace package, its directory."""
    return next(iter(_places(module)), None)


def _nearest_places(module: str) -> list[Path]:
    """Return the places of a module; if code created it, those of its nearest parent that has any."""
    found = map(_places, reversed(with_parents(module)))
    return next((places for places in found if places), [])


def _places(module: str) -> list[Path]:
    """Return a module's file, loaded or not; for a namespace package, all directories."""
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
    if found is not None and canonicalize_name(found.name) in requirements("torch"):
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
