"""The overlay: a TorchServe home whose workers are shims.

``TS_MODEL_SERVER_HOME`` names the directory from which the TorchServe frontend takes its
backend scripts. The overlay's ``ts/`` holds symlinks to the installed ``ts`` package's entries,
except its own ``ts/model_service_worker.py``, which runs the shim. Nothing installed is changed.

A server that `interpool serve` starts has one of its own (server_home.py). The one that ``overlay`` gives is
for a plain `torchserve`, and stays: it may stand in a server's configuration, on this machine or on another
one that shares the directory. It is named after what it depends on, is built under a temporary name and
renamed into place, and never changes afterwards: concurrent builders cannot disturb each other.

TorchServe starts its workers in a model's directory and puts that on PYTHONPATH, where the archive
could bring a ``sitecustomize.py`` or a module of Python's own: code that runs before any shim. So
the overlay has launchers in ``bin/`` that start a shim in isolated mode and install nothing, and
``interpool serve`` lets TorchServe use them if it asks for signatures.
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
from interpool.native.provision.store import cache_root, private_directory

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
    """The overlay for the installed TorchServe and this Python, built if it is not there yet.

    Raises OverlayError if TorchServe is absent or the directory cannot be used.
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
        variable: of the environment, which names another place.

    Raises:
        OverlayError: TorchServe would treat an overlay there differently.
    """
    if "site-packages" in str(parent) or "dist-packages" in str(parent):
        raise OverlayError(
            f"the overlay must not lie in {parent}: TorchServe treats a home whose path says "
            f"site-packages or dist-packages differently; set {variable} to another directory"
        )


def build(home: Path) -> None:
    """Make an overlay of the empty directory ``home``; raises OSError, OverlayError without TorchServe."""
    _Source.installed().build(home)


def restore(home: Path) -> bool:
    """Make the overlay ``home`` again if it is not whole; True if it was not. Raises OverlayError."""
    return _make(home, _Source.installed())


def _parent() -> Path:
    """No part of the cache, unless that is named: people empty caches while servers run."""
    if os.environ.get("INTERPOOL_CACHE"):
        return cache_root() / "home"
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.path.abspath(os.path.expanduser(data))) / "interpool" / "home"


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
    """What an overlay is made of: the installed TorchServe, this Python, and the worker script."""

    package: Path
    worker: Path
    version: str
    entries: list[str]
    record: dict[str, str]

    @classmethod
    def installed(cls) -> Self:
        """Raises OverlayError if TorchServe is absent."""
        package = installed_ts()
        version = (package / "version.txt").read_text(encoding="utf-8").strip()
        record = {
            "python": sys.executable,
            "ts": str(package),
            "version": version,
            "standby": str(standby_path()),
        }
        entries = sorted(entry.name for entry in package.iterdir() if entry.name != "__pycache__")
        return cls(package, Path(__file__).resolve().with_name("worker_script.py"), version, entries, record)

    def digest(self) -> str:
        """Names it."""
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
        # A shim that is compiled at each start takes 1.4 MB more, and many servers write no bytecode.
        py_compile.compile(str(home / SHIM_MODULE), doraise=True)
        (home / "bin").mkdir()
        for name in LAUNCHERS:
            text = _TORCHRUN_LAUNCHER if name == TORCHRUN else _PYTHON_LAUNCHER
            (home / "bin" / name).write_text(text.format(python=shlex.quote(self.record["python"])))
            (home / "bin" / name).chmod(0o755)
        lines = "".join(f"{name}={value}\n" for name, value in self.record.items())
        (home / shim.OVERLAY_RECORD).write_text(lines, encoding="utf-8")

    def is_whole_in(self, home: Path) -> bool:
        """Whether ``home`` has every file TorchServe asks for, from where it should come."""
        own = (home / shim.OVERLAY_RECORD, home / SHIM_MODULE, *(home / "bin" / name for name in LAUNCHERS))
        return all(path.is_file() for path in own) and all(
            (home / "ts" / name).is_file()
            and (home / "ts" / name).resolve()
            == (self.worker if name == WORKER_SCRIPT else (self.package / name).resolve())
            for name in REQUIRED_FILES
        )


def _move_into_place(scratch: Path, home: Path, source: _Source) -> None:
    """Rename ``scratch`` to ``home``; if another process was first, its work is as good.

    What stands there damaged is moved out of the way first.
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
