"""Everything that makes and judges hermetic archives."""

from __future__ import annotations

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.pack import PackReport, pack

__all__ = ["PackError", "PackReport", "pack"]
