"""The home of one server, which `interpool serve` makes for it, and the sign that the server lives.

It lies where TorchServe extracts models, since the server cannot do without that directory either.
So an emptied cache of private copies takes nothing from a running server.

The frontend holds a file in its home: its standard input is that file, which is empty, and from which it
reads nothing. (A directory would not do: no Python starts with that.) The lock ends with the frontend, killed
or not. Another server removes homes that no process holds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from interpool.handler.errors import OverlayError
from interpool.handler.frontend import shim
from interpool.handler.frontend.held import unheld
from interpool.handler.frontend.overlay import LAUNCHERS, build, require_usable

_PREFIX = "interpool-server-"
_HELD = "held"


def make_server_home(directory: Path) -> tuple[Path, int]:
    """A new home below ``directory``, and a descriptor that holds it; raises OverlayError."""
    directory = Path(os.path.abspath(directory))
    require_usable(directory, "TEMP")
    try:
        while True:
            home = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=directory))
            with contextlib.suppress(FileNotFoundError):  # taken for one that was left, and removed
                (home / _HELD).touch(mode=0o600)
                descriptor = _hold(home / _HELD)
                break
        build(home)
    except OSError as error:
        raise OverlayError(
            f"cannot make the server's home in {directory}: {error.strerror}; make that directory writable, "
            "or set TEMP to another one"
        ) from error
    if "INTERPOOL_SIGNATURE_KEYS" in os.environ and not os.access(home / "bin" / LAUNCHERS[0], os.X_OK):
        shutil.rmtree(home, ignore_errors=True)
        raise OverlayError(
            f"programs in {directory} cannot be run (it is mounted noexec). With INTERPOOL_SIGNATURE_KEYS, "
            "TorchServe starts its workers by one there; set TEMP to another directory"
        )
    return home, descriptor


def hold_again(home: Path) -> int:
    """A descriptor that holds a home which was made again: the frontend's hold is of the one before."""
    (home / _HELD).touch(mode=0o600)
    return _hold(home / _HELD)


def lives_in(directory: Path) -> bool:
    """Whether a server of this user lives that has its home there."""
    for home in _homes(directory):
        with unheld(home / _HELD) as is_free:
            if not is_free:
                return True
    return False


def remove_ended(directory: Path) -> None:
    """Remove this user's homes there whose servers have ended."""
    for home in _homes(directory):
        with unheld(home / _HELD) as is_free:
            if is_free:
                shutil.rmtree(home, ignore_errors=True)


def _homes(directory: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if path.name.startswith(_PREFIX) and path.lstat().st_uid == os.getuid():
                yield path


def _hold(file: Path) -> int:
    """A descriptor that holds it. If its file system knows no locks, no process can remove it either."""
    try:
        return shim.hold(str(file))
    except FileNotFoundError:
        raise
    except OSError:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
