"""The first step of packing in this process: pack takes it in one of its own, and then tries the archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interpool.archiver_ext import PackError
from interpool.archiver_ext.packing.jobs import BuildJob, Built
from interpool.archiver_ext.packing.options import PackOptions
from interpool.archiver_ext.packing.plan import Proposal
from interpool.archiver_ext.packing.write.building import export


def build(
    spec: str,
    root: Path,
    folder: Path,
    *,
    inputs: str | None = None,
    decisions: list[Proposal] | None = None,
    **options: Any,
) -> Built:
    """Write ``archive.ptpkg`` into a folder.

    Args:
        spec: as pack's.
        root: the project, which is on ``sys.path``.
        folder: of the archive.
        inputs: as pack's; None does not run the model.
        decisions: of a plan.
        options: others of PackOptions.
    """
    given = PackOptions(root=root, inputs=inputs, **options)
    archive = folder / "archive.ptpkg"
    return export(BuildJob(spec=spec, options=given, archive=archive, decisions=decisions or []))


def refused_build(spec: str, root: Path, folder: Path, **options: Any) -> PackError:
    """What ``build`` raises."""
    with pytest.raises(PackError) as caught:
        build(spec, root, folder, **options)
    return caught.value
