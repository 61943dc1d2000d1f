"""What a handler file imports: this module's and its function's names stay what they are.

Every hermetic .mar, also an old one, contains a copy of the handler file. An unchanged TorchServe
runs that copy, which imports the installed interpool.
"""

from __future__ import annotations

from typing import Any


def open_model(context: Any) -> Any:
    """The model of the archive that TorchServe's ``context`` describes, in a stock worker.

    Returns:
        What answers batches: ``handle(data, context)``.

    Raises:
        ArchiveError: the package is missing, damaged, or refused (see SignaturePolicy).
        Exception: any that the package's own code raises while it is loaded.
    """
    from interpool.handler.stock_worker.fanout import FannedOutModel

    return FannedOutModel(context)
