"""What a handler file imports: this module's and its function's names stay what they are.

A copy of the handler file lies in every hermetic .mar that was ever made, and an unchanged
TorchServe runs that copy against the interpool that is installed.
"""

from __future__ import annotations

from typing import Any


def open_model(context: Any) -> Any:
    """The model of the archive that TorchServe's ``context`` describes, in a stock worker.

    Returns:
        What answers batches: ``handle(data, context)``.

    Raises:
        ArchiveError: the package is missing, damaged, or refused (see SignaturePolicy).
        Exception: whatever the package's own code raises while it is loaded.
    """
    from interpool.handler.stock_worker.fanout import FannedOutModel

    return FannedOutModel(context)
