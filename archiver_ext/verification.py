"""The earlier name of ``interpool.archiver_ext.verify.verification``, for programs that import it.

``interpool.archiver_ext`` itself has what they need.
"""

from __future__ import annotations

from interpool.archiver_ext.verify.verification import (
    STAGES,
    Stage,
    VerifyReport,
    Watch,
    report_of,
    verify_archive,
)

__all__ = ["STAGES", "Stage", "VerifyReport", "Watch", "report_of", "verify_archive"]
