"""Extracts archives as TorchServe does it, into a directory with a manifest."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from interpool.archiver_ext.mar.reading import MEMBER_LIMIT, tgz_members
from interpool.handler.errors import ServeError
from interpool.handler.frontend.held import owned, unheld
from interpool.handler.frontend.shim import HANDLER_STEM, hold
from interpool.handler.torchserve import MANIFEST
from interpool.native.errors import ArchiveError

PACKAGE = ".ptpkg"  # the suffix of a hermetic archive that is in no .mar
_REMEDY = "Make one with `interpool archive`, or torch-model-archiver"
_GZIP = b"\x1f\x8b"  # how such a file begins
_PREFIX = "interpool-extracted-"


class _NoArchive(Exception):
    """It cannot be extracted; the message is a part of a sentence."""


@contextlib.contextmanager
def extracted(mar: Path) -> Iterator[Path]:
    """Extract an archive, and remove the directory at the end of the ``with`` block.

    Args:
        mar: a .mar, a .tar.gz, a .ptpkg, or a directory. A directory gets a link, as TorchServe makes one. It
            shows that the folder belongs to its owner, and that nothing may be restored in it.

    Raises:
        ServeError: it is none of these, is damaged, does not fit on the disk, or has no manifest.
        OSError: no temporary directory can be made.
    """
    with temporary_folder() as folder:
        target = folder / "model"  # what a trial keeps beside it is in the same folder, and goes with it
        if mar.is_dir():
            target.symlink_to(mar.resolve())
            yield target
            return
        target.mkdir()
        try:
            _extract(mar, target)
        except Exception as error:  # noqa: BLE001 - each format and compression has its own
            reason = error.message if isinstance(error, ArchiveError) else str(error)
            reason = reason.removeprefix(str(mar)).partition("\n")[0].strip(": ")
            if isinstance(error, zipfile.BadZipFile):
                reason += ": it is damaged, copy it again"
            raise ServeError(f"{mar} is not an archive of TorchServe's: {reason}. {_REMEDY}") from None
        places = (target, *sorted(path for path in target.iterdir() if path.is_dir()))
        found = [place for place in places if (place / MANIFEST).is_file()]
        if not found:
            raise ServeError(f"{mar} holds no {MANIFEST}, so it is no archive of TorchServe's. {_REMEDY}")
        yield found[0]


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new temporary directory for an archive, which is removed at the end of the ``with`` block.

    Those of this user's processes that were killed are removed first.

    Raises:
        OSError: none can be made.
    """
    for left in owned(Path(tempfile.gettempdir()), _PREFIX):
        with unheld(left) as is_free:
            if is_free:
                shutil.rmtree(left, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        while True:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX))
            try:
                stack.callback(os.close, hold(folder))
            except FileNotFoundError:  # another process has just removed it
                continue
            except OSError:  # its file system has no locks; so no process removes it
                pass
            break
        yield Path(folder)


def _extract(mar: Path, directory: Path) -> None:
    if not mar.is_file():  # opening a pipe would wait for its writer
        raise _NoArchive("it is neither a file nor a directory")
    if mar.suffix == PACKAGE:
        _wrap(mar, directory)
    elif not _is_gzip(mar) and zipfile.is_zipfile(mar):
        with zipfile.ZipFile(mar) as archive:
            members = archive.infolist()
            if len(members) > MEMBER_LIMIT:
                raise _NoArchive(f"it has more than {MEMBER_LIMIT:,} files")
            _require_room(sum(member.file_size for member in members), shutil.disk_usage(directory).free)
            archive.extractall(directory)
    else:
        _extract_tgz(mar, directory)


def _is_gzip(mar: Path) -> bool:
    with mar.open("rb") as file:
        return file.read(len(_GZIP)) == _GZIP


def _extract_tgz(mar: Path, directory: Path) -> None:
    """Extract a .tar.gz, whose headers alone may unpack to more than the memory has."""
    with mar.open("rb") as file:
        if file.read(len(_GZIP)) != _GZIP:
            raise _NoArchive("it is neither a zip nor a .tar.gz" if file.tell() else "it is empty")
        size, free = 0, shutil.disk_usage(directory).free
        for member, content in tgz_members(mar, file):
            size += member.size
            _require_room(size, free)
            place = directory / member.name  # inside: no name leads out, and no link is extracted
            if content is not None:
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("wb") as copy:
                    shutil.copyfileobj(content, copy)
            elif member.isdir():
                place.mkdir(parents=True, exist_ok=True)
            else:
                raise _NoArchive(f"{member.name} is neither a file nor a directory")


def _require_room(size: int, free: int) -> None:
    """Raise _NoArchive if files of that size together do not fit into the free bytes."""
    if size > free:
        raise _NoArchive(
            f"it would unpack to {size:,} bytes, and {tempfile.gettempdir()} has room for {free:,}; if it is "
            "really that large, set TMPDIR to a larger place"
        )


def _wrap(package: Path, directory: Path) -> None:
    """Make a model's directory of a hermetic archive, as TorchServe makes one of the .mar around it."""
    model = {
        "modelName": package.stem,
        "modelVersion": "1.0",
        "handler": f"{HANDLER_STEM}.py",
        "serializedFile": package.name,
    }
    (directory / MANIFEST).parent.mkdir()
    (directory / MANIFEST).write_text(json.dumps({"model": model}), encoding="utf-8")
    try:
        os.link(package.resolve(), directory / package.name)
    except OSError:  # another file system
        shutil.copyfile(package, directory / package.name)
