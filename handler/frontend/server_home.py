"""The home of one server, which `interpool serve` makes, and the lock that shows that the server lives.

The home lies in the directory where TorchServe extracts models, which the server needs, too. So a running
server loses nothing if the cache of private copies is emptied.

The frontend holds a file in its home, as its standard input. The file is empty, and the frontend does not
read it. It cannot be a directory, because no Python starts with that as its standard input. The lock ends
with the frontend, even if that is killed. Another server removes homes that no process holds.
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
    """Make a new home below ``directory``.

    Returns:
        The home, and a descriptor that holds it.

    Raises:
        OverlayError: TorchServe is absent, the home cannot be made there, or signatures are asked for and no
            program can be run there.
    """
    directory = Path(os.path.abspath(directory))
    require_usable(directory, "TEMP")
    try:
        while True:
            home = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=directory))
            with contextlib.suppress(FileNotFoundError):  # another process has removed it as left over
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
    """A descriptor that holds a home that was made again; the frontend holds a file of the previous one.

    Raises:
        OSError: the file cannot be made or opened.
    """
    (home / _HELD).touch(mode=0o600)
    return _hold(home / _HELD)


def lives_in(directory: Path) -> bool:
    """Whether a server of this user lives and has its home there."""
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
    """A descriptor that holds it. If its file system has no locks, no process removes it, either."""
    try:
        return shim.hold(str(file))
    except FileNotFoundError:
        raise
    except OSError:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
