"""TorchServe's own archiver, for tests that run beside others.

It builds in ``TMPDIR/NAME``, which it removes first: two at once with one name disturb each other.
"""

from __future__ import annotations

import tempfile
import threading

from model_archiver.model_archiver_config import ModelArchiverConfig
from model_archiver.model_packaging import generate_model_archive

# The temporary directory is the process's: who makes one of its own beside ``wrap`` in a thread holds this.
MAKING = threading.RLock()


def wrap(config: ModelArchiverConfig) -> None:
    """Make the archive that ``config`` describes, in a directory of this call's own."""
    with MAKING, tempfile.TemporaryDirectory() as work:
        before, tempfile.tempdir = tempfile.tempdir, work
        try:
            generate_model_archive(config)
        finally:
            tempfile.tempdir = before
