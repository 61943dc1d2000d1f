"""Makes the archives, with the stock archiver."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from model_archiver.model_packaging_utils import model_handlers
from stock_archiver import MAKING, wrap
from system.comparison.archive import Archive


def build(archive: Archive, store: Path) -> Path:
    """Makes ``NAME.mar`` in ``store``."""
    with MAKING, tempfile.TemporaryDirectory(prefix="ip-mar-") as temporary:
        folder = Path(temporary) / "source"
        shutil.copytree(archive.source, folder, ignore=shutil.ignore_patterns("__pycache__"))
        if archive.make is not None:
            archive.make(folder)
        extra = Path(temporary) / "extra"
        extra.mkdir()
        for name in archive.extra:
            (extra / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (folder / name).is_dir() else shutil.copy2
            copy(folder / name, extra / name)
        config = _text(folder / "model-config.yaml", archive.config)
        requirements = _text(folder / "requirements.txt", archive.requirements)
        shipped = archive.handler in model_handlers
        return store / wrap(
            archive.name,
            archive.handler if shipped else folder / archive.handler,
            store,
            archive.version,
            model_file=archive.model_file and folder / archive.model_file,
            serialized_file=archive.serialized and folder / archive.serialized,
            extra_files=extra if archive.extra else None,
            config_file=config,
            requirements_file=requirements,
        )


def _text(path: Path, text: str) -> str | None:
    if not text:
        return None
    path.write_text(text)
    return str(path)
