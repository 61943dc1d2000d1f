"""Jobs and results of pack's child processes.

Imports neither torch nor the user's code, which run in the children.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.options import PackOptions
from interpool.archiver_ext.packing.plan import Proposal
from interpool.archiver_ext.verify.serving_side import FoundRequest
from interpool.native.archive.format import Action, EntryKind, Extern, ModuleRecord, Serving
from interpool.native.child_process import ChildError, Job, Program, Result, run

# torch names the zip's root directory after the file, so the name is constant.
ARCHIVE_NAME: Final = "archive.ptpkg"


@dataclass(frozen=True)
class BuildJob:
    """The parameters of a build.

    Attributes:
        spec: the SPEC.
        options: checked options.
        archive: the file to write.
        planned_data: the plan's files, by path below the root; None without a plan, and then files that are
            observed to be read.
        decisions: of a plan or trial loads.
        needed: packages that a trial load needed, and why.
    """

    spec: str
    options: PackOptions
    archive: Path
    planned_data: dict[str, str] | None = None
    decisions: list[Proposal] = field(default_factory=list)
    needed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Findings:
    """What building an archive shows, and packing reports.

    Attributes:
        kind: of the entry.
        modules: action, reason and importers of every module that was met, by dotted name.
        externs: third-party top-level modules that the server must have.
        inputs: the example inputs' signature, for JSON; None without any.
        serving: how it is served; before the trial, the user's choices.
        warnings: limitations of the archive, each starting with the user's line.
        lazy: imports in functions that cannot be imported here and did not run, each starting with the user's
            line.
        seconds: wall time of build, export (writing the object), run (on the example inputs), scan (of
            dependencies) and digest; after the trial, its time, too.
    """

    kind: EntryKind
    modules: dict[str, ModuleRecord]
    externs: list[Extern]
    inputs: Any
    serving: Serving
    warnings: list[str]
    lazy: list[str]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Built(Findings):
    """A finished archive.

    Attributes:
        proposals: decisions about third-party packages.
        data: files beside the code, with the line that reads each.
        hidden: hidden files that were read but not added, with the line that reads each.
        unseen: modules of the project that were imported here, but that no module in the archive imports.
        own: top-level names of the project's modules that were imported here, in the archive or not.
        sources: the project's own files, by module.
        bases: the directories at which names of the project's files start, by first part; "" for all other
            names.
        process_group: whether building the object created a process group of torch.distributed.
    """

    proposals: list[Proposal]
    data: dict[str, str]
    hidden: dict[str, str]
    unseen: list[str]
    own: list[str]
    sources: dict[str, str]
    bases: dict[str, str]
    process_group: bool


@dataclass(frozen=True)
class Fault:
    """Why a module cannot be packed as the rules decided.

    Attributes:
        why: text that is the same on each machine.
        said: the error, or "".
    """

    why: str
    said: str = ""


@dataclass(frozen=True)
class BuildRefusal:
    """Why no archive was written.

    Attributes:
        message: of the PackError.
        user_traceback: of the PackError.
        broken: modules that cannot be packed as the rules decided.
        proposals: the decisions of the attempt.
        data: files that would have been added, with the line that reads each.
    """

    message: str
    user_traceback: str
    broken: dict[str, Fault]
    proposals: list[Proposal]
    data: dict[str, str]


@dataclass(frozen=True)
class BuildResult:
    """The result of a build: either field is set."""

    built: Built | None = None
    refusal: BuildRefusal | None = None


@dataclass(frozen=True)
class TrialJob:
    """An archive to load without the project's code.

    Attributes:
        archive: the file.
        root: the project's directory, which is removed from ``sys.path``.
        project: top-level names of the project's own modules in the archive.
        left_out: top-level names of its other modules that were imported here.
        installed: top-level names of other modules in the archive.
        extern: modules that the archive imports from the server.
        sources: the project's own files, by module, for messages.
        bases: as in Built.
        open_to: the rules' actions for packages, as in open_decisions. If one turns out to be needed from the
            server, it is taken from there, and the trial continues.
        serve_check: whether to answer its example inputs as requests, too.
    """

    archive: Path
    root: Path
    project: list[str]
    left_out: list[str]
    installed: list[str]
    extern: list[str]
    sources: dict[str, str]
    bases: dict[str, str]
    open_to: dict[str, Action]
    serve_check: bool = False


class Trouble(StrEnum):
    """The kind of failure of a trial."""

    RAISED = "raised"
    """Any other error."""
    DIFFERS = "differs"
    """It answered its example inputs differently."""
    MOCKED = "mocked"
    """A mocked object was used."""
    FILE_MISSING = "file missing"
    """A file that it opens does not exist."""
    NOT_SERVED = "not served"
    """No request gives the answer to its example inputs."""
    LOOKED_OUTSIDE = "looked outside"
    """Code searched outside of the archive for a module that is in it."""


@dataclass(frozen=True)
class TrialFailure:
    """A failure of a trial.

    Attributes:
        doing: ``load`` or ``answer``.
        trouble: the kind of failure.
        error: description.
        line: the user's own line that failed, or "".
        user_traceback: without internal frames; "" if no exception was raised.
        modules: modules of the archive in the traceback, innermost last.
        mocked: dotted name of the mocked object that was used, or "".
        missing: files and folders of the project that its code searched for and that are not in the archive.
            The names have the form of ``--data``, and each has the line that searched for it.
        refused: files and folders of the project that were searched for by their paths on this machine, with
            the line that searched for each, or "".
    """

    doing: str
    trouble: Trouble
    error: str
    line: str = ""
    user_traceback: str = ""
    modules: list[str] = field(default_factory=list)
    mocked: str = ""
    missing: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial.

    Attributes:
        failures: empty after success. Each failure but the first is caused by a package, and occurred after
            the packages of the previous failures were taken from the server.
        request: a working request, if one was searched for.
    """

    failures: list[TrialFailure] = field(default_factory=list)
    request: FoundRequest | None = None


BUILDING: Final = Program("interpool.archiver_ext.packing.write.building", BuildJob, BuildResult)
TRIAL_LOAD: Final = Program("interpool.archiver_ext.packing.prove.trial_load", TrialJob, TrialResult)


def run_step(program: Program[Job, Result], job: Job, doing: str, cwd: Path | None = None) -> Result:
    """Run one of pack's child processes.

    Args:
        program: BUILDING or TRIAL_LOAD.
        job: the job.
        doing: its activity, for messages.
        cwd: its working directory; default: this process's.

    Raises:
        PackError: it ended without a result.
    """
    # Sets of strings are pickled in hash order, and equal models must give equal bytes.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        return run(program, job, cwd=cwd, env=environment)
    except ChildError as error:
        raise PackError(
            f"the process that was {doing} the model {error}; its own output above says more"
        ) from None
