"""The tiny model's archives."""

from __future__ import annotations

from pathlib import Path

from benchmarks.shared import archiving


def archive(store: Path, work: Path) -> None:
    """``pool.mar``, hermetic, and ``stock.mar``, for the stock worker: one handler's code."""
    handler = "benchmarks.shared.tiny_handler"
    archiving.archive("pool", store, archiving.hermetic(f"{handler}:Handler", work / "tiny.ptpkg"))
    stock = archiving.ordinary(f"{handler}:Handler", work, "benchmarks.shared.tiny")
    archiving.archive("stock", store, stock)
