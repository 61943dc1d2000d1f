"""The overlay: a TorchServe home whose workers are shims.

``TS_MODEL_SERVER_HOME`` names the directory from which the TorchServe frontend takes its
backend scripts. The overlay's ``ts/`` holds symlinks to the installed ``ts`` package's entries,
except its own ``ts/model_service_worker.py``, which runs the shim. Nothing installed is changed.

A server that `interpool serve` starts has its own overlay (server_home.py). The overlay of ``overlay()`` is
for a plain `torchserve`. It is never removed, because a server's configuration may name it, on this machine
or on another one that shares the directory. Its name has a digest of all on which it depends. It is
built under a temporary name and renamed into place, and never changes afterwards. So concurrent builders
cannot disturb each other.

TorchServe starts its workers in a model's directory, which it puts on PYTHONPATH. An archive could contain a
``sitecustomize.py``, or a module with the name of one of Python's own. Such code runs before any shim. So the
overlay has launchers in ``bin/``, which start a shim in isolated mode and install nothing. If signatures are
asked for, ``interpool serve`` has TorchServe use them.
"""

from __future__ import annotations

import hashlib
import os
import py_compile
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from interpool.handler.errors import OverlayError
from interpool.handler.frontend import shim
from interpool.handler.torchserve import (
    CPU_LAUNCHER,
    REQUIRED_FILES,
    TORCHRUN,
    WORKER_SCRIPT,
    installed_ts,
)
from interpool.native.errors import ProvisioningError
from interpool.native.provision import standby_path
from interpool.native.provision.store import absolute, cache_root, private_directory

SHIM_MODULE = "interpool_shim.py"
LAUNCHERS = ("python", "python3", TORCHRUN)
_PYTHON_LAUNCHER = f"""#!/bin/sh
for argument do
    case "$argument" in
    {CPU_LAUNCHER})
        # TorchServe tries it once, and goes on without it.
        echo "interpool: cpu_launcher_enable cannot be used with signatures: its launcher starts workers" \
            "that import what they find in an archive before it was checked" >&2
        exit 1
        ;;
    */ts/{WORKER_SCRIPT}) exec {{python}} -I "$@" ;;
    */ts/utils/setup_model_venv.py | pip)
        echo "interpool: no signature covers what an archive asks to be installed; where signatures" \
            "are asked for, leave out useVenv and install_py_dep_per_model" >&2
        exit 1
        ;;
    esac
done
exec {{python}} "$@"
"""
_TORCHRUN_LAUNCHER = """#!/bin/sh
echo "interpool: hermetic models are not served with torchrun: remove parallelType" >&2
exit 1
"""


def overlay() -> Path:
    """The overlay for the installed TorchServe and this Python; it is built if it does not exist yet.

    Raises:
        OverlayError: TorchServe is absent, or the directory cannot be used.
    """
    source = _Source.installed()
    parent = _parent()
    home = parent / f"ts-{source.version}-{source.digest()}"
    require_usable(parent, "INTERPOOL_CACHE")
    _make(home, source)
    return home


def require_usable(parent: Path, variable: str) -> None:
    """Check that an overlay can be made in a directory.

    Args:
        parent: the directory.
        variable: the environment's variable that names another directory, for the message.

    Raises:
        OverlayError: TorchServe would treat an overlay there differently.
    """
    if "site-packages" in str(parent) or "dist-packages" in str(parent):
        raise OverlayError(
            f"the overlay must not lie in {parent}: TorchServe treats a home whose path says "
            f"site-packages or dist-packages differently; set {variable} to another directory"
        )


def build(home: Path) -> None:
    """Make an overlay of the empty directory ``home``.

    Raises:
        OverlayError: TorchServe is absent, or its files cannot be read.
        OSError: a file cannot be written there.
    """
    _Source.installed().build(home)


def restore(home: Path) -> bool:
    """Make the overlay ``home`` again if it is not complete.

    Returns:
        True if it was not complete.

    Raises:
        OverlayError: TorchServe is absent, or the overlay cannot be built.
    """
    return _make(home, _Source.installed())


def _parent() -> Path:
    """The directory of the overlays.

    It is outside of the cache, because people empty caches while servers run. If INTERPOOL_CACHE is set, it
    is in that cache.

    Raises:
        OverlayError: the path begins with ``~``, and this user has no home directory.
    """
    try:
        if os.environ.get("INTERPOOL_CACHE"):
            return cache_root() / "home"
        return absolute(os.environ.get("XDG_DATA_HOME") or "~/.local/share") / "interpool" / "home"
    except ProvisioningError as error:
        raise OverlayError(f"cannot build the overlay: {error}") from error


def _make(home: Path, source: _Source) -> bool:
    parent = home.parent
    try:
        if source.is_whole_in(home):
            return False
        private_directory(parent)
        scratch = Path(tempfile.mkdtemp(prefix=".building-", dir=parent))
        try:
            source.build(scratch)
            _move_into_place(scratch, home, source)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except (OSError, ProvisioningError) as error:
        raise OverlayError(f"cannot build the overlay in {parent}: {error}") from error
    return True


@dataclass(frozen=True)
class _Source:
    """The parts of an overlay: the installed TorchServe, this Python, and the worker script."""

    package: Path
    worker: Path
    version: str
    entries: list[str]
    record: dict[str, str]

    @classmethod
    def installed(cls) -> Self:
        """The parts on this machine.

        Raises:
            OverlayError: TorchServe is absent, or its files cannot be read.
        """
        package = installed_ts()
        try:
            version = (package / "version.txt").read_text(encoding="utf-8").strip()
            entries = sorted(entry.name for entry in package.iterdir() if entry.name != "__pycache__")
        except OSError as error:
            raise OverlayError(
                f"TorchServe's {error.filename or package} cannot be read: {error.strerror}; "
                "make it readable, or reinstall torchserve"
            ) from error
        record = {
            "python": sys.executable,
            "ts": str(package),
            "version": version,
            "standby": str(standby_path()),
        }
        return cls(package, Path(__file__).resolve().with_name("worker_script.py"), version, entries, record)

    def digest(self) -> str:
        """The part of an overlay's name that changes with its contents."""
        identity = "\n".join([*self.entries, str(self.worker), *map("=".join, self.record.items())]).encode()
        identity += self.worker.read_bytes() + self.worker.with_name("shim.py").read_bytes()
        identity += (_PYTHON_LAUNCHER + _TORCHRUN_LAUNCHER).encode()
        return hashlib.sha256(identity).hexdigest()[:12]

    def build(self, home: Path) -> None:
        """Fill the empty directory ``home``."""
        (home / "ts").mkdir()
        for name in self.entries:
            target = self.worker if name == WORKER_SCRIPT else self.package / name
            (home / "ts" / name).symlink_to(target)
        (home / SHIM_MODULE).symlink_to(self.worker.with_name("shim.py"))
        # A process that compiles the shim at its start takes 1.4 MB more, and many servers write no bytecode.
        py_compile.compile(str(home / SHIM_MODULE), doraise=True)
        (home / "bin").mkdir()
        for name in LAUNCHERS:
            text = _TORCHRUN_LAUNCHER if name == TORCHRUN else _PYTHON_LAUNCHER
            (home / "bin" / name).write_text(text.format(python=shlex.quote(self.record["python"])))
            (home / "bin" / name).chmod(0o755)
        lines = "".join(f"{name}={value}\n" for name, value in self.record.items())
        (home / shim.OVERLAY_RECORD).write_text(lines, encoding="utf-8")

    def is_whole_in(self, home: Path) -> bool:
        """Whether ``home`` has each file that TorchServe needs, linked to the right place."""
        own = (home / shim.OVERLAY_RECORD, home / SHIM_MODULE, *(home / "bin" / name for name in LAUNCHERS))
        return all(path.is_file() for path in own) and all(
            (home / "ts" / name).is_file()
            and (home / "ts" / name).resolve()
            == (self.worker if name == WORKER_SCRIPT else (self.package / name).resolve())
            for name in REQUIRED_FILES
        )


def _move_into_place(scratch: Path, home: Path, source: _Source) -> None:
    """Rename ``scratch`` to ``home``; if another process was first, keep its overlay, which is the same.

    A damaged overlay is moved away and removed first.
    """
    try:
        scratch.rename(home)
    except OSError:
        if source.is_whole_in(home):
            return
        damaged = scratch.with_name(scratch.name + "-damaged")
        home.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
        scratch.rename(home)
