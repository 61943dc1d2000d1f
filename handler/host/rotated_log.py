"""Rotates the file of the host's log by its size.

Descriptor 2 is the log. Descriptor 1 is the log too, as soon as no shim waits for the host's start. Native
code prints to these descriptors as well. So the file is exchanged below the descriptors. Its size decides,
whichever code has written to it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import stat
from logging.handlers import RotatingFileHandler

from interpool.handler.config import HostSettings

_DESCRIPTORS = (1, 2)


class RotatedLog(RotatingFileHandler):
    """Exchanges the log's file once it is large enough, or another program has moved it.

    Args:
        path: of the file that descriptor 2 leads to.
        most_bytes: the size in bytes at which another file begins; 0: there is no limit.
        kept: how many earlier files are kept.
    """

    def __init__(self, path: str, most_bytes: int, kept: int) -> None:
        super().__init__(path, maxBytes=most_bytes, backupCount=kept, encoding="utf-8")

    def _open(self) -> io.TextIOWrapper:
        before = os.fstat(2)
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for each in _DESCRIPTORS:
            with contextlib.suppress(OSError):  # a model may have closed it
                if os.path.samestat(os.fstat(each), before):
                    os.dup2(descriptor, each, inheritable=True)
        return open(descriptor, "a", encoding=self.encoding, errors="backslashreplace")

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802
        """Never rotate while a line is written. ``look`` decides: it also counts native code's output."""
        return False

    def look(self) -> None:
        """Begin another file if it is time.

        Raises:
            OSError: that has failed.
        """
        self.acquire()
        try:
            before = self.stream
            if before is None or self._is_moved(before):
                self.stream = self._open()
                if before is not None:
                    before.close()
            elif 0 < self.maxBytes <= os.fstat(before.fileno()).st_size:
                self.doRollover()
        finally:
            self.release()

    def _is_moved(self, stream: io.TextIOWrapper) -> bool:
        """Whether another server with that log directory, or logrotate, has moved the file of this stream."""
        try:
            return not os.path.samestat(os.stat(self.baseFilename), os.fstat(stream.fileno()))
        except FileNotFoundError:
            return True


def install(settings: HostSettings) -> None:
    """Have the log rotated from now on, if it is a file of the host's own."""
    if not stat.S_ISREG(os.fstat(2).st_mode) or settings.log_to == "stdout":
        return
    (before,) = logging.root.handlers
    path = os.readlink("/proc/self/fd/2").removesuffix(" (deleted)")
    handler = RotatedLog(path, int(settings.log_mb * 1e6), settings.log_files)
    handler.setFormatter(before.formatter)
    logging.root.handlers = [handler]


def look() -> None:
    """Rotate the log if it is time. If that fails, the next look tries it again."""
    for handler in logging.root.handlers:
        if isinstance(handler, RotatedLog):
            with contextlib.suppress(OSError):
                handler.look()
