"""TorchServe's own archiver, for tests that run beside others.

It builds in ``TMPDIR/NAME``, which it removes first: two at once with one name disturb each other.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from model_archiver.model_archiver_config import ModelArchiverConfig
from model_archiver.model_packaging import generate_model_archive

# The temporary directory is the process's: who makes one of its own beside ``wrap`` in a thread holds this.
MAKING = threading.RLock()


def wrap(name: str, handler: str | Path, store: Path, version: str = "1.0", **more: str | Path | None) -> str:
    """Make ``NAME.mar`` in a directory of this call's own; gives the file's name.

    Args:
        name: the model's.
        handler: a file, or the name of one of TorchServe's own.
        store: where it is to lie.
        version: the model's.
        more: the archiver's other options; None for none.
    """
    config = ModelArchiverConfig(
        model_name=name,
        handler=str(handler),
        export_path=str(store),
        version=version,
        force=True,
        **{option: str(value) for option, value in more.items() if value},
    )
    with MAKING, tempfile.TemporaryDirectory() as work:
        before, tempfile.tempdir = tempfile.tempdir, work
        try:
            generate_model_archive(config)
        finally:
            tempfile.tempdir = before
    return f"{name}.mar"
