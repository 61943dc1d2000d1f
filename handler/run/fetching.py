"""Fetches archives from other machines, by any URL that fsspec knows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from interpool.handler.errors import ServeError
from interpool.handler.host.extracting import temporary_folder

_URL = re.compile(r"\w+://[^\s'\"<>]+")


def shown(where: str) -> str:
    """A URL for people, without its credentials."""
    parts = urlsplit(where)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if parts.scheme else where


@contextlib.contextmanager
def fetched(where: str) -> Iterator[Path]:
    """The file of an archive. A file on this machine is used as it is; others are downloaded.

    A downloaded file is removed at the end of the ``with`` block.

    Args:
        where: a path, or a URL such as s3://, gs:// or https://.

    Raises:
        ServeError: it cannot be fetched, or a package for that is missing.
    """
    if "://" not in where:
        yield Path(where)
        return
    parts = urlsplit(where)
    if parts.scheme == "file":
        yield Path(unquote(parts.path))
        return
    with temporary_folder() as folder:
        target = folder / Path(parts.path).name
        try:
            import fsspec

            files, path = fsspec.core.url_to_fs(where)
            files.get_file(path, str(target))
        except ImportError as error:
            install = "pip install 'interpool[ray]'" if error.name == "fsspec" else str(error)
            raise ServeError(f"{shown(where)} needs a package that is missing here: {install}") from None
        except Exception as error:  # noqa: BLE001 - each file system has its own
            # Clients quote the URL anew, or name another one, to which they were sent.
            reason = _URL.sub(lambda url: shown(url[0]), f"{type(error).__name__}: {error}")
            raise ServeError(f"{shown(where)} cannot be fetched: {reason}") from None
        yield target
