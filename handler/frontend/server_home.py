"""The home of one server, which `interpool serve` makes, and the lock that shows that the server lives.

The home lies in the directory where TorchServe extracts models, which the server needs, too. So a running
server loses nothing if the cache of private copies is emptied.

The frontend holds a file in its home, as its standard input. The file is empty, and the frontend does not
read it. It cannot be a directory, because no Python starts with that as its standard input. The lock ends
with the frontend, even if that is killed. Another server removes homes that no process holds.

If a home is gone, a pool's host makes it again (``handler/host/home_repair.py``), without a file to hold: the
frontend could not hold it. Another server may remove that home, and the host makes it once more.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from interpool.handler.errors import OverlayError
from interpool.handler.frontend import shim
from interpool.handler.frontend.held import IN_HOME, owned, unheld
from interpool.handler.frontend.overlay import LAUNCHERS, build, require_usable
from interpool.handler.torchserve import HOME_VARIABLE

_PREFIX = "interpool-server-"
_UNFINISHED_S = 60.0  # a process that makes a home makes its file to hold at once


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
    with contextlib.ExitStack() as undo:
        try:
            while True:
                home = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=directory))
                undo.callback(shutil.rmtree, home, ignore_errors=True)
                with contextlib.suppress(FileNotFoundError):  # another process has removed it as left over
                    descriptor = _hold(home)
                    break
            build(home)
        except OSError as error:
            raise OverlayError(
                f"cannot make the server's home in {directory}: {error.strerror}; make that directory "
                "writable, or set TEMP to another one"
            ) from error
        if "INTERPOOL_SIGNATURE_KEYS" in os.environ and not os.access(home / "bin" / LAUNCHERS[0], os.X_OK):
            raise OverlayError(
                f"programs in {directory} cannot be run (it is mounted noexec). With "
                "INTERPOOL_SIGNATURE_KEYS, TorchServe starts its workers by one there; set TEMP to another "
                "directory"
            )
        undo.pop_all()
    return home, descriptor


def _hold(home: Path) -> int:
    """A descriptor that holds a home that was made just now, with a file in it for this.

    If its file system has no locks, no process removes it, either.

    Raises:
        OSError: the file cannot be made or opened.
    """
    file = home / IN_HOME
    file.touch(mode=0o600)
    try:
        return shim.hold(str(file))
    except FileNotFoundError:
        raise
    except OSError:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)


def take_as_stdin(home: Path, descriptor: int) -> None:
    """Hold a home as standard input, which the frontend inherits, and name it in the environment.

    Args:
        home: of the server that this process is about to start.
        descriptor: holds the home; it is closed.
    """
    os.environ[HOME_VARIABLE] = str(home)
    os.dup2(descriptor, 0)
    os.set_inheritable(0, True)  # a process without standard input may have got this number
    if descriptor:
        os.close(descriptor)


def let_go() -> None:
    """Give up this process's home, and remove it if no frontend holds it."""
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.close(null)
    remove_ended(Path(os.environ[HOME_VARIABLE]).parent)


def let_go_at_exit() -> None:
    """Have this process, whose child the frontend is, give up the home when it ends."""
    atexit.register(let_go)


def lives_in(directory: Path) -> bool:
    """Whether a server of this user lives and has its home there."""
    for home in owned(directory, _PREFIX):
        with _ended(home) as has_ended:
            if not has_ended:
                return True
    return False


def remove_ended(directory: Path, own: Path | None = None) -> None:
    """Remove this user's homes there whose servers have ended.

    Args:
        directory: of the homes.
        own: the home whose server the caller knows to have ended. If a host has made it again, it is removed
            although it has no file to hold.
    """
    for home in owned(directory, _PREFIX):
        with _ended(home) as has_ended:
            if has_ended or (home == own and not (home / IN_HOME).exists()):
                shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _ended(home: Path) -> Iterator[bool]:
    """Whether a home's server has ended, or was never started."""
    with unheld(home / IN_HOME) as is_free:
        yield is_free or _is_unfinished(home)


def _is_unfinished(home: Path) -> bool:
    """Whether it has no file to hold: its making or removal was cut short, or a host made it again."""
    try:
        return not (home / IN_HOME).exists() and time.time() - home.stat().st_mtime > _UNFINISHED_S
    except OSError:
        return False
