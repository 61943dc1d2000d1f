"""Makes, inspects and verifies hermetic archives.

Names are resolved on first use: a server imports verification into every private interpreter, but not
packing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interpool.archiver_ext.errors import PackError as PackError
    from interpool.archiver_ext.packing.attempts import NotWorkingError as NotWorkingError
    from interpool.archiver_ext.packing.pack import pack as pack
    from interpool.archiver_ext.packing.reports import PackReport as PackReport
    from interpool.archiver_ext.packing.write.building import Unpackable as Unpackable
    from interpool.archiver_ext.schema import manifest_schema as manifest_schema
    from interpool.archiver_ext.verify.verification import VerifyReport as VerifyReport
    from interpool.archiver_ext.verify.verification import report_of as report_of
    from interpool.archiver_ext.verify.verification import verify_archive as verify_archive

_EXPORTS = {
    "NotWorkingError": "interpool.archiver_ext.packing.attempts",
    "PackError": "interpool.archiver_ext.errors",
    "PackReport": "interpool.archiver_ext.packing.reports",
    "Unpackable": "interpool.archiver_ext.packing.write.building",
    "VerifyReport": "interpool.archiver_ext.verify.verification",
    "manifest_schema": "interpool.archiver_ext.schema",
    "pack": "interpool.archiver_ext.packing.pack",
    "report_of": "interpool.archiver_ext.verify.verification",
    "verify_archive": "interpool.archiver_ext.verify.verification",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
