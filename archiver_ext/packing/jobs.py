"""The child processes of pack: what each is given, and what it finds.

Neither torch nor the user's code is imported here: both live in the children.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.plan import Proposal
from interpool.archiver_ext.packing.serving_choices import NO_CHOICES, Choices
from interpool.archiver_ext.verify.serving_side import FoundRequest
from interpool.native.archive.format import Action, EntryKind, Extern, ModuleRecord, Serving
from interpool.native.child_process import ChildError, Job, Program, Result, run

# torch names the directory in the zip after the file: always this one.
ARCHIVE_NAME: Final = "archive.ptpkg"


@dataclass(frozen=True)
class BuildJob:
    """What is to be built.

    Attributes:
        spec: the SPEC.
        root: the project's directory.
        archive: the file to write.
        globs: the user's patterns by action.
        data: globs of files to put in beside the code.
        planned_data: the plan's files, by path below the root; None without a plan, and then
            the files that are seen to be read.
        decisions: a plan's, or what a trial load taught.
        needed: packages that a trial load could not do without, and why.
        inputs: where the example inputs are, or "" for the convention.
        run: whether to run the model on them.
        rtol: relative tolerance of the self-test.
        atol: absolute tolerance of the self-test.
        serving: how the user wants it served, by option or plan.
    """

    spec: str
    root: Path
    archive: Path
    globs: dict[str, list[str]]
    data: list[str]
    planned_data: dict[str, str] | None
    decisions: list[Proposal]
    needed: dict[str, str]
    inputs: str
    run: bool
    rtol: float
    atol: float
    serving: Choices = NO_CHOICES


@dataclass(frozen=True)
class Built:
    """An archive that was written.

    Attributes:
        kind: what the entry is.
        modules: what was done with each module that was met.
        externs: what the server must have.
        proposals: decisions about other people's packages.
        data: files beside the code, with the line that reads each.
        hidden: hidden files that were read and that nobody has named, so that they are not in it, likewise.
        inputs: the example inputs, described; None without any.
        serving: how it is to be served, as far as the user says so.
        warnings: what the archive cannot honour, each starting with the user's line.
        lazy: imports in functions that could not be followed here, and that did not run.
        unseen: the project's modules that were imported and that nothing in the archive imports.
        sources: the project's own files, by module.
        bases: the directories that the names of the project's files start at, by the name's first
            part; those of all other names, by "".
        process_group: whether building the object has made a process group of torch.distributed.
        seconds: wall time by step.
    """

    kind: EntryKind
    modules: dict[str, ModuleRecord]
    externs: list[Extern]
    proposals: list[Proposal]
    data: dict[str, str]
    hidden: dict[str, str]
    inputs: Any
    serving: Serving
    warnings: list[str]
    lazy: list[str]
    unseen: list[str]
    sources: dict[str, str]
    bases: dict[str, str]
    process_group: bool
    seconds: dict[str, float]


@dataclass(frozen=True)
class Fault:
    """Why a module cannot be packed as the rules decided.

    Attributes:
        why: in words that are the same on each machine.
        said: the error, or "".
    """

    why: str
    said: str = ""


@dataclass(frozen=True)
class BuildRefusal:
    """Why no archive was written.

    Attributes:
        message: PackError's.
        user_traceback: PackError's.
        broken: modules that cannot be packed as the rules decided.
        proposals: what had been decided until then.
        data: files that would have gone in, with the line that reads each.
    """

    message: str
    user_traceback: str
    broken: dict[str, Fault]
    proposals: list[Proposal]
    data: dict[str, str]


@dataclass(frozen=True)
class BuildResult:
    """One of the two."""

    built: Built | None = None
    refusal: BuildRefusal | None = None


@dataclass(frozen=True)
class TrialJob:
    """An archive to load where the project is not.

    Attributes:
        archive: the file.
        root: the project's directory, which is taken off ``sys.path``.
        project: top-level names of the project's own modules.
        installed: top-level names of other modules that went into the archive.
        extern: modules that the archive takes from the server.
        sources: the project's own files, by module, for messages.
        bases: where they lie, as in Built.
        open_to: what the rules have done with packages, as open_decisions has it: those that turn out
            to be needed from outside are taken from there, and the trial goes on.
        serve_check: whether its example inputs must be answered as requests, too.
    """

    archive: Path
    root: Path
    project: list[str]
    installed: list[str]
    extern: list[str]
    sources: dict[str, str]
    bases: dict[str, str]
    open_to: dict[str, Action]
    serve_check: bool = False


class Trouble(StrEnum):
    """What was wrong in a trial."""

    RAISED = "raised"
    """An error that is none of those below."""
    DIFFERS = "differs"
    """It answered its example inputs differently."""
    MOCKED = "mocked"
    """Something that is mocked was used."""
    FILE_MISSING = "file missing"
    """A file that it opens is not there."""
    NOT_SERVED = "not served"
    """Its example inputs are answered by no request."""
    LOOKED_OUTSIDE = "looked outside"
    """Something that is in the archive was looked for outside of it."""


@dataclass(frozen=True)
class TrialFailure:
    """How an archive failed its trial.

    Attributes:
        doing: ``load`` or ``answer``.
        trouble: what was wrong.
        error: in words.
        line: the user's own line that failed, or "".
        user_traceback: without the machinery; "" if nothing was raised.
        modules: those of the archive's in the traceback, innermost last.
        mocked: the object that was mocked and used, by its dotted name, or "".
        missing: files and folders that the project has and the archive has not, and that its code
            looked for beside itself, as ``--data`` takes them, with the line.
    """

    doing: str
    trouble: Trouble
    error: str
    line: str = ""
    user_traceback: str = ""
    modules: list[str] = field(default_factory=list)
    mocked: str = ""
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialResult:
    """How a trial went.

    Attributes:
        failures: none, if it went well. Each but the first is a package's fault, and what failed next
            when those to blame for the ones before it were taken from outside.
        request: the one that was found, if one was looked for.
    """

    failures: list[TrialFailure] = field(default_factory=list)
    request: FoundRequest | None = None


BUILDING: Final = Program("interpool.archiver_ext.packing.write.building", BuildJob, BuildResult)
TRIAL_LOAD: Final = Program("interpool.archiver_ext.packing.prove.trial_load", TrialJob, TrialResult)


def run_step(program: Program[Job, Result], job: Job, doing: str, cwd: Path | None = None) -> Result:
    """Run one of pack's child processes.

    Args:
        program: BUILDING or TRIAL_LOAD.
        job: what it is to do.
        doing: what it does to the model, for messages.
        cwd: its working directory; default: this process's.

    Raises:
        PackError: it ended without a result.
    """
    # Sets of strings are pickled in hash order: equal models must give equal bytes.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        return run(program, job, cwd=cwd, env=environment)
    except ChildError as error:
        raise PackError(
            f"the process that was {doing} the model {error}; its own output above says more"
        ) from None
