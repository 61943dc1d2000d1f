"""``pack``: from a SPEC to a hermetic archive that has been seen to load.

This module imports neither torch nor the user's code: both live in child processes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.jobs import ARCHIVE_NAME, run_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from interpool.native.archive_format import Action, EntryKind, Extern, ModuleRecord

# What torch.package's known failures say, and what helps.
_ADVICE = {
    "was mocked out": "take the mocked module from the server with --extern instead",
    "is in the archive, but the code looked for it outside": (
        "let the archive's own code import it; an installed library, and sys.modules by its "
        "plain name, see only what is installed"
    ),
}


@dataclass(frozen=True)
class PackReport:
    """What pack did.

    Attributes:
        spec: as given.
        output: the archive.
        kind: what the entry is.
        modules: action and reason of every module met, by dotted name.
        externs: third-party top-level modules that the server must have.
        warnings: imports that the archive cannot honour, each starting with its line.
        size: of the archive, in bytes.
        seconds: wall time of build, export, digest and trial.
    """

    spec: str
    output: Path
    kind: EntryKind
    modules: dict[str, ModuleRecord]
    externs: list[Extern]
    warnings: list[str]
    size: int
    seconds: dict[str, float]

    def names(self, action: Action) -> list[str]:
        """The modules with this action, sorted."""
        return sorted(name for name, done in self.modules.items() if done["action"] == action)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {**asdict(self), "output": str(self.output)}


def pack(
    spec: str,
    output: Path,
    *,
    root: Path | None = None,
    intern: Iterable[str] = (),
    extern: Iterable[str] = (),
    mock: Iterable[str] = (),
    deny: Iterable[str] = (),
    data: Iterable[str] = (),
) -> PackReport:
    """Pack the object that a SPEC names into a hermetic archive.

    The archive appears under its name only when it is complete and has been loaded in
    a fresh process; a failure leaves what was there before.

    Args:
        spec: ``package.module:name``; a function is called, another object is packed.
        output: the archive to write.
        root: the project's directory, put on ``sys.path``; default: the current one.
        intern: modules to put into the archive: globs in torch.package's syntax, which
            win over the rules. Of several that match, the first of deny, mock, extern,
            intern does.
        extern: modules to take from the server.
        mock: modules to replace by an empty stand-in.
        deny: modules to refuse.
        data: files that the code opens, as globs relative to ``root``: wherever the archive is
            loaded, code finds them through ``__file__`` and importlib.resources.

    Raises:
        PackError: see its message.
    """
    project = Path(root or Path.cwd()).resolve()
    if not project.is_dir():
        raise PackError(f"the project's root {project} is not a directory")
    target = Path(output).absolute()
    if target.is_dir() or not target.parent.is_dir():
        raise PackError(
            f"cannot write {output}: {target.parent} must be a directory, and {target.name} a file in it"
        )
    globs = {"intern": [*intern], "extern": [*extern], "mock": [*mock], "deny": [*deny]}
    _check_globs(globs)
    with _workdir(target) as workdir:
        job = {"spec": spec, "root": str(project), "globs": globs, "data": [*data]}
        built = run_step("building", workdir, job, cwd=Path.cwd())
        if "error" in built:
            raise PackError(built["error"], built["traceback"])
        started = time.monotonic()
        _trial(spec, project, workdir, built)
        seconds = {**built["seconds"], "trial": time.monotonic() - started}
        packed = workdir / ARCHIVE_NAME
        size = packed.stat().st_size
        os.replace(packed, target)
    return PackReport(
        spec=spec,
        output=target,
        kind=built["kind"],
        modules=built["modules"],
        externs=built["externs"],
        warnings=built["warnings"],
        size=size,
        seconds=seconds,
    )


@contextlib.contextmanager
def _workdir(target: Path) -> Iterator[Path]:
    # Beside the target, so that the last step is a rename within one file system.
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as name:
            yield Path(name)
    except PermissionError as error:
        raise PackError(f"cannot write {target}: {error}") from None


def _check_globs(globs: dict[str, list[str]]) -> None:
    for action, patterns in globs.items():
        for pattern in patterns:
            if any("**" in part and part != "**" for part in pattern.split(".")):
                raise PackError(f"--{action} {pattern}: ** must stand alone between dots, as in einops.**")


def _trial(spec: str, project: Path, workdir: Path, built: dict[str, Any]) -> None:
    inside = {name for name, done in built["modules"].items() if done["action"] in ("intern", "mock")}
    own = {name.partition(".")[0] for name in built["sources"]} - sys.stdlib_module_names
    job = {
        "root": str(project),
        "project": sorted(own),
        "installed": sorted({name.partition(".")[0] for name in inside} - own),
        "extern": [name for name, done in built["modules"].items() if done["action"] == "extern"],
        "sources": built["sources"],
    }
    failed = run_step("trial_load", workdir, job, cwd=workdir)
    if not failed:
        return
    what = f"the archive of {spec} does not load in a fresh process: {failed['error']}"
    message = f"{failed['line']}\n  {what}" if failed["line"] else what
    for symptom, advice in _ADVICE.items():
        if symptom in failed["error"]:
            message += f"\n  What to do: {advice}"
    raise PackError(message, failed["traceback"])
