"""The overlay: a TorchServe home whose workers are shims.

``TS_MODEL_SERVER_HOME`` names the directory from which the TorchServe frontend takes its
backend scripts. The overlay's ``ts/`` holds symlinks to the installed ``ts`` package's entries,
except its own ``ts/model_service_worker.py``, which runs the shim. Nothing installed is changed.

The directory is named after what it depends on, is built under a temporary name and renamed
into place, and never changes afterwards: concurrent builders cannot disturb each other.

TorchServe starts its workers in a model's directory and puts that on PYTHONPATH, where the archive
could bring a ``sitecustomize.py`` or a module of Python's own: code that runs before any shim. So
the overlay has launchers in ``bin/`` that start a shim in isolated mode and install nothing, and
``interpool serve`` lets TorchServe use them where it asks for signatures.
"""

from __future__ import annotations

import hashlib
import py_compile
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

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

    Raises OverlayError if TorchServe is absent or the cache directory cannot be used.
    """
    package = installed_ts()
    worker = Path(__file__).resolve().with_name("worker_script.py")
    version = (package / "version.txt").read_text(encoding="utf-8").strip()
    record = {
        "python": sys.executable,
        "ts": str(package),
        "version": version,
        "standby": str(standby_path()),
    }
    entries = sorted(entry.name for entry in package.iterdir() if entry.name != "__pycache__")
    identity = "\n".join([*entries, str(worker), *map("=".join, record.items())]).encode()
    identity += worker.read_bytes() + worker.with_name("shim.py").read_bytes()
    identity += (_PYTHON_LAUNCHER + _TORCHRUN_LAUNCHER).encode()
    digest = hashlib.sha256(identity).hexdigest()[:12]
    parent = cache_root() / "home"
    home = parent / f"ts-{version}-{digest}"
    if "site-packages" in str(home) or "dist-packages" in str(home):
        raise OverlayError(
            f"the overlay must not lie in {parent}: TorchServe treats a home whose path says "
            "site-packages or dist-packages differently; set INTERPOOL_CACHE to another directory"
        )
    if _complete(home, package, worker):
        return home
    try:
        private_directory(parent)
        scratch = Path(tempfile.mkdtemp(prefix=".building-", dir=parent))
        _remove_orphans(parent)
        try:
            _build(scratch, package, entries, worker, record)
            _move_into_place(scratch, home, package, worker)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except (OSError, ProvisioningError) as error:
        raise OverlayError(f"cannot build the overlay in {parent}: {error}") from error
    return home


def _build(home: Path, package: Path, entries: list[str], worker: Path, record: dict[str, str]) -> None:
    (home / "ts").mkdir()
    for name in entries:
        target = worker if name == WORKER_SCRIPT else package / name
        (home / "ts" / name).symlink_to(target)
    (home / SHIM_MODULE).symlink_to(worker.with_name("shim.py"))
    # Here and now, because servers are often told to write no bytecode, and a shim that is
    # compiled at each start takes 1.4 MB more.
    py_compile.compile(str(home / SHIM_MODULE), doraise=True)
    (home / "bin").mkdir()
    for name in LAUNCHERS:
        text = _TORCHRUN_LAUNCHER if name == TORCHRUN else _PYTHON_LAUNCHER
        (home / "bin" / name).write_text(text.format(python=shlex.quote(record["python"])))
        (home / "bin" / name).chmod(0o755)
    lines = "".join(f"{name}={value}\n" for name, value in record.items())
    (home / shim.OVERLAY_RECORD).write_text(lines, encoding="utf-8")


def _complete(home: Path, package: Path, worker: Path) -> bool:
    """Whether ``home`` is whole: every file TorchServe asks for, from where it should come."""
    own = (home / shim.OVERLAY_RECORD, home / SHIM_MODULE, *(home / "bin" / name for name in LAUNCHERS))
    return all(path.is_file() for path in own) and all(
        (home / "ts" / name).is_file()
        and (home / "ts" / name).resolve()
        == (worker if name == WORKER_SCRIPT else (package / name).resolve())
        for name in REQUIRED_FILES
    )


def _move_into_place(scratch: Path, home: Path, package: Path, worker: Path) -> None:
    """Rename ``scratch`` to ``home``; if another process was first, its work is as good.

    What stands there damaged is moved out of the way first.
    """
    try:
        scratch.rename(home)
    except OSError:
        if _complete(home, package, worker):
            return
        damaged = scratch.with_name(scratch.name + "-damaged")
        home.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
        scratch.rename(home)


def _remove_orphans(parent: Path) -> None:
    """Remove the overlays of installations that are gone."""
    for home in parent.glob("ts-*"):
        try:
            record = shim.overlay_record(str(home))
        except OSError:
            continue
        if not (Path(record["ts"]).is_dir() and Path(record["python"]).exists()):
            shutil.rmtree(home, ignore_errors=True)
