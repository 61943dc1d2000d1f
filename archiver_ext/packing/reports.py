"""What packing reports: the decisions, their reasons and the evidence."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.packing.jobs import Findings

if TYPE_CHECKING:
    from interpool.archiver_ext.packing.plan import Plan
    from interpool.archiver_ext.verify.serving_side import FoundRequest
    from interpool.native.archive.format import Action


@dataclass(frozen=True)
class PlanReport(Findings):
    """Findings and decisions of packing.

    Attributes:
        spec: as given.
        plan: decisions about third-party packages, and the data files.
        attempts: the number of builds until the archive worked.
        corrections: the rules' wrong decisions, and the evidence.
        request: a working HTTP request; None if none was searched for.
    """

    spec: str
    plan: Plan
    attempts: int
    corrections: list[str]
    request: FoundRequest | None

    def names(self, action: Action) -> list[str]:
        """Return the modules with this action, sorted."""
        return sorted(name for name, done in self.modules.items() if done["action"] == action)

    def as_dict(self) -> dict[str, Any]:
        """Return a form for JSON."""
        found = self.request
        request = None
        if found is not None:
            request = {"content_type": found.content_type, "bytes": len(found.body), "part": found.part}
        return {**asdict(replace(self, request=None)), "request": request}


@dataclass(frozen=True)
class PackReport(PlanReport):
    """The result of pack.

    Attributes:
        output: the archive.
        size: of the archive, in bytes.
    """

    output: Path
    size: int

    def as_dict(self) -> dict[str, Any]:
        """Return a form for JSON."""
        return {**super().as_dict(), "output": str(self.output)}
