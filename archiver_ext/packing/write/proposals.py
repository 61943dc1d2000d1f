"""Lists the decisions about third-party packages, one proposal for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpool.archiver_ext.packing.plan import Proposal
from interpool.archiver_ext.packing.write.explain import find_line

if TYPE_CHECKING:
    from interpool.archiver_ext.packing.write.exporter import HermeticExporter


def proposals(exporter: HermeticExporter) -> list[Proposal]:
    """Return the decisions that the user may change, with the user's line that led to each."""
    found: dict[str, Proposal] = {}
    for module in sorted(exporter.verdicts):
        verdict = exporter.verdicts[module]
        if not verdict.glob or verdict.action == "deny":
            continue
        known = found.get(verdict.glob)
        if known is None or not known.line:
            line = find_line(exporter, module)
            found[verdict.glob] = Proposal(verdict.glob, verdict.action, verdict.reason, line, verdict.origin)
    return [found[glob] for glob in sorted(found)]
