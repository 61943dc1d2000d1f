"""The process that proves an archive loads, and answers, where the project's code is not.

Run as ``python -P -m interpool.archiver_ext.pack.trial_load WORKDIR`` by run_step.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.pack.jobs import ARCHIVE_NAME, leave, read_job, write_result
from interpool.archiver_ext.tracebacks import readable_traceback
from interpool.archiver_ext.verify.self_test import differences, replay
from interpool.native.archive.format import ENTRY_PACKAGE, ENTRY_RESOURCE
from interpool.native.archive.importer import HermeticImporter
from interpool.native.archive.reader import read_manifest, read_records
from interpool.native.upstream.torch_private import (
    FROM_PACKAGE,
    MANGLED,
    TYPED_STORAGE_WARNING,
    PyTorchFileReader,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import FrameType, ModuleType, TracebackType

    from interpool.native.archive.format import EntryKind, SelfTest


class Blocker(importlib.abc.MetaPathFinder):
    """Refuses imports that only this machine could answer.

    Args:
        project: top-level names of the project's own modules, refused to everyone.
        installed: top-level names of other modules that went into the archive, refused to
            code from the archive only: what is installed on a server may need them too,
            and then they are installed there.
        extern: modules that the archive is to take from the server, never refused.
    """

    def __init__(self, project: Iterable[str], installed: Iterable[str], extern: Iterable[str]) -> None:
        self._project = frozenset(project)
        self._installed = frozenset(installed)
        self._extern = frozenset(each for name in extern for each in _with_parents(name))

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Raise ModuleNotFoundError for a blocked name, else leave it to others."""
        top = fullname.partition(".")[0]
        if fullname in self._extern:
            return None
        if top in self._project or (top in self._installed and _asked_by_archive()):
            raise ModuleNotFoundError(
                f"{fullname} is in the archive, but the code looked for it outside",
                name=fullname,
            )
        return None


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _asked_by_archive() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None and bool(frame.f_globals.get(FROM_PACKAGE))


def trial_load(archive: Path, sources: dict[str, str]) -> Any:
    """Load the archive's entry as a server does, and run the self-test if there is one.

    Args:
        archive: the packed file.
        sources: the project's files by module, for messages.

    Returns:
        ``{}``, or what failed: ``doing`` (``load`` or ``answer``), ``line`` (the user's own, or
        ""), ``error``, ``traceback`` and ``modules`` (those of the archive's in the traceback,
        innermost last).
    """
    doing = "load"
    with archive.open("rb") as file:
        manifest = read_manifest(archive.name, file, read_records(archive.name, file))
    assert manifest is not None, "the building step has just written it"
    try:
        importer = HermeticImporter(PyTorchFileReader(str(archive)), str(archive), manifest)
        entry = importer.load_pickle(ENTRY_PACKAGE, ENTRY_RESOURCE)
        if manifest["self_test"] is None:
            return {}
        doing = "answer"
        differing = _self_test(importer, entry, manifest["entry"]["kind"], manifest["self_test"])
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- it is the user's code
        return {
            "doing": doing,
            "line": _own_line(error.__traceback__, sources),
            "error": f"{type(error).__name__}: {error}",
            "traceback": readable_traceback(error, lambda name: _shown(name, sources)),
            "modules": _modules(error.__traceback__),
        }
    if not differing:
        return {}
    return {"doing": doing, "line": "", "error": "; ".join(differing[:3]), "traceback": "", "modules": []}


def _self_test(importer: HermeticImporter, entry: Any, kind: EntryKind, test: SelfTest) -> list[str]:
    held = importer.load_pickle(test["package"], test["resource"])
    return differences(held["expected"], replay(entry, kind, held, test), test["rtol"], test["atol"])


def _modules(tb: TracebackType | None) -> list[str]:
    members = (_member(frame.filename) for frame in traceback.extract_tb(tb))
    return [
        member.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for member in members if member
    ]


def _own_line(tb: TracebackType | None, sources: dict[str, str]) -> str:
    """The innermost line of the project's in the traceback, or ""."""
    by_member = _members(sources)
    line = ""
    for frame in traceback.extract_tb(tb):
        shown = by_member.get(_member(frame.filename))
        if shown is not None:
            line = f"{shown}:{frame.lineno}: {(frame.line or '').strip()}"
    return line


def _member(filename: str) -> str:
    """The member of the archive that a frame's code came from, or "".

    Frames of packaged code are named ``<torch_package_N>.path/in/archive.py``.
    """
    return filename.partition(">.")[2] if filename.startswith(MANGLED) else ""


def _shown(filename: str, sources: dict[str, str]) -> str:
    member = _member(filename)
    return _members(sources).get(member, f"{member} (in the archive)") if member else filename


def _members(sources: dict[str, str]) -> dict[str, str]:
    return {
        f"{name.replace('.', '/')}{suffix}": shown
        for name, shown in sources.items()
        for suffix in (".py", "/__init__.py")
    }


def main(workdir: Path) -> None:
    """Do the trial in ``workdir``; a failure is a result like any other."""
    job = read_job("trial_load", workdir)
    # One line per storage, about torch.package's own use of it.
    warnings.filterwarnings("ignore", message=TYPED_STORAGE_WARNING)
    root = Path(job["root"])
    sys.path[:] = [entry for entry in sys.path if entry and Path(entry).resolve() != root]
    sys.meta_path.insert(0, Blocker(job["project"], job["installed"], job["extern"]))
    result = trial_load(workdir / ARCHIVE_NAME, job["sources"])
    write_result("trial_load", workdir, result)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    leave()
