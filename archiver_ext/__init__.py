"""Everything that makes and judges hermetic archives."""

from __future__ import annotations

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.pack.packing import PackReport, pack

__all__ = ["PackError", "PackReport", "pack"]
