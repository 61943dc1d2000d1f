"""Corrects the rules' decisions after failed attempts.

Imports neither torch nor the user's code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpool.archiver_ext.packing.dotted_names import with_parents
from interpool.archiver_ext.packing.jobs import Trouble
from interpool.archiver_ext.packing.plan import Proposal
from interpool.native.archive.format import Origin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from interpool.archiver_ext.packing.jobs import Fault, TrialFailure
    from interpool.native.archive.format import Action

_LONGEST = 160


def open_decisions(proposals: Iterable[Proposal]) -> dict[str, Action]:
    """Return the rules' decisions that may be corrected: the action by package, as in Rules.package_of."""
    decided = (each for each in proposals if each.origin is not Origin.USER)
    return {each.glob.removesuffix(".**"): each.action for each in decided}


def _package_of(module: str, packages: Collection[str]) -> str:
    """Return the package of these that contains the module; "" if none does."""
    return next((name for name in with_parents(module) if name in packages), "")


def blamed(failed: TrialFailure, open_to: Mapping[str, Action]) -> str:
    """Return the package that the archive needs from the server; "" if none is found.

    Args:
        failed: the failure of a trial.
        open_to: the actions of packages that the rules decided.
    """
    if failed.trouble is Trouble.NOT_SERVED:  # loading and answering worked
        return ""
    mocked = _package_of(failed.mocked, open_to)
    if open_to.get(mocked) == "mock":
        return mocked
    packages = (_package_of(module, open_to) for module in reversed(failed.modules))
    return next((package for package in packages if open_to.get(package) == "intern"), "")


class Corrections:
    """Decisions that failed attempts have changed.

    Attributes:
        decisions: by glob.
        needed: packages that must not be mocked, and why.
        made: descriptions of the changes and their reasons.
    """

    def __init__(self, decisions: Sequence[Proposal]) -> None:
        self.decisions = {each.glob: each for each in decisions}
        self.needed: dict[str, str] = {}
        self.made: list[str] = []

    def after_refusal(self, broken: Mapping[str, Fault], proposals: Sequence[Proposal]) -> bool:
        """Take modules that cannot be packed from the server; returns whether a decision changed.

        Args:
            broken: as in BuildRefusal.
            proposals: the decisions of the attempt.
        """
        open_to = open_decisions(proposals)
        taken = [
            self._extern(package, f"{name} {fault.why}", _first_line(fault.said))
            for name, fault in broken.items()
            if (package := _package_of(name, open_to))
        ]
        return any(taken)

    def after_trial(self, failures: Sequence[TrialFailure], proposals: Sequence[Proposal]) -> bool:
        """Change decisions after a failed trial; returns whether any changed.

        Args:
            failures: as in TrialResult.
            proposals: the decisions of the attempt.
        """
        open_to = open_decisions(proposals)
        learned = [
            self._blame(failed, package, open_to.pop(package))
            for failed in failures
            if (package := blamed(failed, open_to))
        ]
        first = failures[0]
        without_fault = first.trouble in (Trouble.FILE_MISSING, Trouble.NOT_SERVED)
        if not learned and not first.missing and not without_fault:
            # C code that gets a mock may raise any error.
            mocked = [package for package, action in open_to.items() if action == "mock"]
            learned = [self._blame(first, package, "mock") for package in mocked]
        return any(learned)

    def _blame(self, failed: TrialFailure, package: str, action: Action) -> bool:
        kind, said = _kind_and_words(failed)
        if action == "intern":
            return self._extern(package, f"its code does not work from an archive{kind}", said)
        if _package_of(failed.mocked, {package}):
            return self._need(package, f"the archive needs {failed.mocked} to {failed.doing}")
        return self._need(package, f"without it the archive does not {failed.doing}{kind}", said)

    # Archives contain ``why``. ``said`` is an error's text, which may contain paths of this machine, so it
    # goes only into ``made``.

    def _extern(self, package: str, why: str, said: str) -> bool:
        glob = f"{package}.**"
        if glob in self.decisions:
            return False
        self.decisions[glob] = Proposal(glob, "extern", why, origin=Origin.RULES)
        self.made.append(_correction(f"{package} is taken from the server: {why}", said))
        return True

    def _need(self, package: str, why: str, said: str = "") -> bool:
        if package in self.needed:
            return False
        self.needed[package] = why
        self.made.append(_correction(f"{package} is not mocked: {why}", said))
        return True


def _first_line(said: str) -> str:
    return "".join(said.splitlines()[:1])[:_LONGEST]


def _kind_and_words(failed: TrialFailure) -> tuple[str, str]:
    """Return the error's type, in parentheses, or ""; and its text."""
    if failed.trouble is Trouble.DIFFERS:
        return "", _first_line(failed.error)
    kind, _, said = failed.error.partition(": ")
    return f" ({kind})", _first_line(said)


def _correction(why: str, said: str) -> str:
    return f"{why}: {said}" if said else why
