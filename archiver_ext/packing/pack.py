"""Packs the object of a SPEC into a hermetic archive that has been loaded and has answered, and plans it.

This module imports neither torch nor the user's code, which run in child processes.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.attempts import Progress, Request, TriedArchive, build_and_try
from interpool.archiver_ext.packing.jobs import ARCHIVE_NAME
from interpool.archiver_ext.packing.plan import Plan, check_glob
from interpool.archiver_ext.packing.serving_choices import NO_CHOICES, Choices
from interpool.archiver_ext.workdir import workdir_for
from interpool.native.archive.format import TOLERANCES_BELOW, is_tolerance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from interpool.archiver_ext.verify.serving_side import FoundRequest
    from interpool.native.archive.format import Action, EntryKind, Extern, ModuleRecord, Serving

RTOL = 1e-4
ATOL = 1e-5


@dataclass(frozen=True)
class PlanReport:
    """Findings and decisions of packing.

    Attributes:
        spec: as given.
        kind: of the entry.
        plan: decisions about third-party packages, and the data files.
        modules: action, reason and importers of every module met, by dotted name.
        externs: third-party top-level modules that the server must have.
        inputs: the example inputs' signature, or None.
        warnings: limitations of the archive, each starting with the user's line.
        lazy: imports in functions that cannot be imported here and did not run, each starting with the user's
            line.
        attempts: the number of builds until the archive worked.
        corrections: the rules' wrong decisions, and the evidence.
        seconds: wall time of build, export (writing the object), run (on the example inputs), scan (of
            dependencies), digest and trial.
        serving: how it is served.
        request: a working HTTP request; None if none was searched for.
    """

    spec: str
    kind: EntryKind
    plan: Plan
    modules: dict[str, ModuleRecord]
    externs: list[Extern]
    inputs: Any
    warnings: list[str]
    lazy: list[str]
    attempts: int
    corrections: list[str]
    seconds: dict[str, float]
    serving: Serving
    request: FoundRequest | None

    def names(self, action: Action) -> list[str]:
        """Return the modules with this action, sorted."""
        return sorted(name for name, done in self.modules.items() if done["action"] == action)

    def as_dict(self) -> dict[str, Any]:
        """Return a form for JSON."""
        found = self.request
        request = None
        if found is not None:
            request = {"content_type": found.content_type, "bytes": len(found.body), "part": found.part}
        return {**asdict(replace(self, request=None)), "request": request}


@dataclass(frozen=True)
class PackReport(PlanReport):
    """The result of pack.

    Attributes:
        output: the archive.
        size: of the archive, in bytes.
    """

    output: Path
    size: int

    def as_dict(self) -> dict[str, Any]:
        """Return a form for JSON."""
        return {**super().as_dict(), "output": str(self.output)}


def pack(
    spec: str,
    output: Path,
    *,
    root: Path | None = None,
    plan: Plan | None = None,
    inputs: str | None = "",
    intern: Iterable[str] = (),
    extern: Iterable[str] = (),
    mock: Iterable[str] = (),
    deny: Iterable[str] = (),
    data: Iterable[str] = (),
    rtol: float = RTOL,
    atol: float = ATOL,
    serving: Choices = NO_CHOICES,
    serve_check: bool = True,
    progress: Progress = lambda _words: None,
) -> PackReport:
    """Pack the object that a SPEC names into a hermetic archive.

    The archive appears under its name only after a new process has loaded it and answered its example inputs.
    A failure leaves a previous file unchanged.

    Args:
        spec: ``package.module:name``; a function is called, another object is packed.
        output: the archive to write.
        root: the project's directory, put on ``sys.path``; default: the current one.
        plan: decisions to follow, from ``read_plan`` or a report.
        inputs: source of the example inputs: a SPEC, a .json or .pt file, "" for an existing
            ``example_inputs`` beside the SPEC, None for no self-test.
        intern: modules to put into the archive: globs in torch.package's syntax, which override the plan and
            the rules. The first match of deny, mock, extern, intern decides.
        extern: modules to import from the server.
        mock: modules to replace by an empty mock.
        deny: modules to refuse.
        data: files that the code opens without being observed, as globs relative to ``root``. The archive's
            code finds data files through ``__file__`` and importlib.resources.
        rtol: relative tolerance of the self-test.
        atol: absolute tolerance of the self-test.
        serving: how it is served; overrides the plan, which overrides the choices beside the SPEC.
        serve_check: whether the serving code must answer the example inputs as requests in a child process. A
            working request is added to the archive.
        progress: called with a short description before each step.

    Raises:
        PackError: see its message.
    """
    target = Path(output).absolute()
    real = Path(os.path.realpath(target))  # keep a symbolic link
    if real.is_dir() or not real.parent.is_dir():
        raise PackError(
            f"cannot write {output}: {real.parent} must be a directory, and {real.name} a file in it"
        )
    globs = {"intern": intern, "extern": extern, "mock": mock, "deny": deny}
    request = _request(spec, root, plan, inputs, globs, data, rtol, atol, serving, serve_check)
    with workdir_for(real) as workdir:
        tried = build_and_try(request, workdir, progress)
        packed = workdir / ARCHIVE_NAME
        size = packed.stat().st_size
        os.replace(packed, real)
    return PackReport(**_facts(spec, tried), output=target, size=size)


def propose(
    spec: str,
    *,
    root: Path | None = None,
    inputs: str | None = "",
    intern: Iterable[str] = (),
    extern: Iterable[str] = (),
    mock: Iterable[str] = (),
    deny: Iterable[str] = (),
    data: Iterable[str] = (),
    rtol: float = RTOL,
    atol: float = ATOL,
    serving: Choices = NO_CHOICES,
    serve_check: bool = True,
    progress: Progress = lambda _words: None,
) -> PlanReport:
    """Return the decisions of pack without writing an archive: a dry run in a temporary directory.

    Arguments and errors are those of pack.
    """
    globs = {"intern": intern, "extern": extern, "mock": mock, "deny": deny}
    request = _request(spec, root, None, inputs, globs, data, rtol, atol, serving, serve_check)
    with workdir_for(Path(tempfile.gettempdir()) / "interpool-plan") as workdir:
        return PlanReport(**_facts(spec, build_and_try(request, workdir, progress)))


def _request(
    spec: str,
    root: Path | None,
    plan: Plan | None,
    inputs: str | None,
    globs: dict[str, Iterable[str]],
    data: Iterable[str],
    rtol: float,
    atol: float,
    serving: Choices,
    serve_check: bool,
) -> Request:
    project = Path(root or Path.cwd()).resolve()
    if not project.is_dir():
        raise PackError(f"the project's root {project} is not a directory")
    patterns = {action: [*given] for action, given in globs.items()}
    _check_globs(patterns)
    for name, tolerance in {"rtol": rtol, "atol": atol}.items():
        if not is_tolerance(tolerance):
            raise PackError(
                f"--{name} {tolerance}: it must be a number from 0 on, and below {TOLERANCES_BELOW:g}"
            )
    if plan is not None and plan.spec != spec:
        raise PackError(
            f"the plan was made for {plan.spec}, not for {spec}; make one with interpool plan {spec}"
        )
    where = inputs or (plan.inputs if plan is not None else "")
    serving = serving.or_else(plan.serving) if plan is not None else serving
    run = inputs is not None
    return Request(spec, project, patterns, [*data], plan, where, run, rtol, atol, serving, serve_check)


def _check_globs(globs: dict[str, list[str]]) -> None:
    for action, patterns in globs.items():
        for pattern in patterns:
            try:
                check_glob(pattern)
            except ValueError as error:
                raise PackError(f"--{action} {pattern}: {error}") from None


def _facts(spec: str, tried: TriedArchive) -> dict[str, Any]:
    built = tried.built
    return {
        "spec": spec,
        "kind": built.kind,
        "plan": tried.plan,
        "modules": built.modules,
        "externs": built.externs,
        "inputs": built.inputs,
        "warnings": [*built.warnings, *(tried.request.notes if tried.request is not None else ())],
        "lazy": built.lazy,
        "attempts": tried.attempts,
        "corrections": tried.corrections,
        "seconds": tried.seconds,
        "serving": tried.serving,
        "request": tried.request,
    }
