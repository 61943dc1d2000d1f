"""Builds an archive and tries it, repeatedly, until it works or cannot be made to work.

Some dependencies appear only when the archive is loaded: native calls at import, class attributes,
annotations. If a decision of the rules was wrong, it is corrected, and the archive is built again. Decisions
of the user, by option or plan, are never changed.

Imports neither torch nor the user's code, which run in child processes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.decide.corrections import Corrections, open_decisions
from interpool.archiver_ext.packing.dotted_names import top_of
from interpool.archiver_ext.packing.jobs import (
    ARCHIVE_NAME,
    BUILDING,
    TRIAL_LOAD,
    BuildJob,
    BuildRefusal,
    BuildResult,
    Built,
    TrialFailure,
    TrialJob,
    TrialResult,
    Trouble,
    run_step,
)
from interpool.archiver_ext.packing.known_failures import group_was_made, is_advised, row_for
from interpool.archiver_ext.packing.plan import Plan
from interpool.archiver_ext.packing.serving_choices import Choices
from interpool.archiver_ext.packing.write.members import add_request
from interpool.archiver_ext.verify.serving_side import FoundRequest
from interpool.native.archive.format import Origin, Serving

ATTEMPTS = 8
_SHOWN = 5
Progress = Callable[[str], None]

_ADVICE = {
    Trouble.DIFFERS: (
        "make the answer depend on nothing but the inputs and the weights (torch's, numpy's and random's "
        "seeds are set), widen --rtol and --atol, or leave the self-test out with --no-inputs"
    ),
    Trouble.MOCKED: "take the mocked module from the server with --extern instead",
    Trouble.FILE_MISSING: (
        "open files of the project by a path that starts at __file__, or with importlib.resources: a path "
        "relative to the working directory, or on this machine, leads elsewhere on a server"
    ),
    Trouble.LOOKED_OUTSIDE: (
        "let the archive's own code import it; an installed library, and sys.modules by its "
        "plain name, see only what is installed"
    ),
}


@dataclass(frozen=True)
class Request:
    """The parameters of packing.

    Attributes:
        spec: the SPEC.
        root: the project's directory, resolved.
        globs: the user's patterns by action.
        data: globs of files to add beside the code.
        plan: a plan to follow; without one, the rules decide and trial loads correct them.
        inputs: source of the example inputs, or "" for the default.
        run: whether to run the model on them.
        rtol: relative tolerance of the self-test.
        atol: absolute tolerance of the self-test.
        serving: how to serve the model, by option or plan.
        serve_check: whether to answer its example inputs as requests, too.
    """

    spec: str
    root: Path
    globs: Mapping[str, list[str]]
    data: list[str]
    plan: Plan | None
    inputs: str
    run: bool
    rtol: float
    atol: float
    serving: Choices
    serve_check: bool


@dataclass
class TriedArchive:
    """An archive whose trial succeeded.

    Attributes:
        built: the result of building it.
        plan: the decisions.
        attempts: the number of builds.
        corrections: the rules' wrong decisions, and the evidence.
        serving: how it is served.
        request: a working request, if one was searched for.
        seconds: wall time by step, over all attempts.
    """

    built: Built
    plan: Plan
    attempts: int
    corrections: list[str]
    serving: Serving
    request: FoundRequest | None
    seconds: dict[str, float] = field(default_factory=dict)


def build_and_try(request: Request, workdir: Path, progress: Progress) -> TriedArchive:
    """Build the archive in ``workdir``, and try it.

    Args:
        request: the parameters.
        workdir: an empty directory; afterwards it contains the archive, ARCHIVE_NAME.
        progress: called with a short description before each step.

    Raises:
        PackError: it cannot be packed as requested.
        NotHeldError: it can be built, and might work with other decisions.
    """
    # The plan's decisions count as its own, even if the rules or the user made them originally.
    proposals = request.plan.proposals if request.plan is not None else ()
    corrections = Corrections([replace(each, origin=Origin.PLAN) for each in proposals])
    seconds: dict[str, float] = {}
    for attempt in range(1, ATTEMPTS + 1):
        progress(f"building {request.spec}" + (f", attempt {attempt}" if attempt > 1 else ""))
        result = _build(request, corrections, workdir)
        if result.refusal is not None:
            learned = corrections.after_refusal(result.refusal.broken, result.refusal.proposals)
            error = PackError(result.refusal.message, result.refusal.user_traceback)
            known: BuildRefusal | Built = result.refusal
        else:
            known = built = _built(result)
            _add(seconds, built.seconds)
            progress(f"loading {request.spec} in a fresh process")
            started = time.monotonic()
            tried = _try(request, workdir, built)
            _add(seconds, {"trial": time.monotonic() - started})
            if not tried.failures:
                if tried.request is not None:
                    add_request(workdir / ARCHIVE_NAME, tried.request)
                serving = _served(built, tried.request)
                plan = _plan(request, built, serving)
                return TriedArchive(built, plan, attempt, corrections.made, serving, tried.request, seconds)
            learned = corrections.after_trial(tried.failures, built.proposals)
            error = _trial_error(request.spec, tried.failures[0], built)
        if request.plan is not None or not learned:
            raise NotHeldError(error, _plan(request, known)) if known.proposals or known.data else error
    said = f"{request.spec}: still no archive that holds after {ATTEMPTS} attempts; last: {error}"
    advice = "  What to do: decide about the packages above with --extern, --intern or --mock"
    raise NotHeldError(PackError(f"{said}\n{advice}"), _plan(request, known))


class NotHeldError(PackError):
    """No working archive was made, but other decisions might help.

    Attributes:
        plan: the present decisions.
    """

    def __init__(self, error: PackError, plan: Plan) -> None:
        super().__init__(error.message, error.user_traceback)
        self.plan = plan


def _built(result: BuildResult) -> Built:
    assert result.built is not None
    return result.built


def _plan(request: Request, known: Built | BuildRefusal, serving: Serving | None = None) -> Plan:
    choices = request.serving if serving is None else _choices(serving)
    return Plan(request.spec, request.inputs, known.data, tuple(known.proposals), choices)


def _build(request: Request, corrections: Corrections, workdir: Path) -> BuildResult:
    job = BuildJob(
        spec=request.spec,
        root=request.root,
        archive=workdir / ARCHIVE_NAME,
        globs=dict(request.globs),
        data=request.data,
        planned_data=None if request.plan is None else dict(request.plan.data),
        decisions=[*corrections.decisions.values()],
        needed=corrections.needed,
        inputs=request.inputs,
        run=request.run,
        rtol=request.rtol,
        atol=request.atol,
        serving=request.serving,
    )
    return run_step(BUILDING, job, "building")


def _try(request: Request, workdir: Path, built: Built) -> TrialResult:
    inside = {name for name, done in built.modules.items() if done["action"] in ("intern", "mock")}
    own = {top_of(name) for name in built.sources} - sys.stdlib_module_names
    job = TrialJob(
        archive=workdir / ARCHIVE_NAME,
        root=request.root,
        project=sorted(own),
        installed=sorted({top_of(name) for name in inside} - own),
        extern=[name for name, done in built.modules.items() if done["action"] == "extern"],
        sources=built.sources,
        bases=built.bases,
        open_to={} if request.plan is not None else open_decisions(built.proposals),
        serve_check=request.serve_check,
    )
    return run_step(TRIAL_LOAD, job, "loading", cwd=workdir)


def _served(built: Built, request: FoundRequest | None) -> Serving:
    if request is not None:
        return {**built.serving, "batches": request.batches, "parts": request.parts}
    if built.serving["batches"] in ("stack", "batch"):
        raise PackError(
            f"batches is {built.serving['batches']!r}, and without example inputs that are answered as "
            "requests nothing proves that requests can share a call\n  What to do: give example inputs and "
            "leave out --no-inputs and --no-serve-check, or choose `each`"
        )
    return built.serving


def _choices(serving: Serving) -> Choices:
    """Return the choices that differ from the default, for the plan."""
    return Choices(serving["batches"], serving["grad"] or None, serving["train_mode"] or None)


def _trial_error(spec: str, failed: TrialFailure, built: Built) -> PackError:
    if failed.trouble is Trouble.DIFFERS:
        what = (
            f"the archive of {spec} answers its example inputs differently in a fresh process: {failed.error}"
        )
    elif failed.trouble is Trouble.NOT_SERVED:
        what = f"{spec} would not be served: {failed.error}"
    else:
        what = f"the archive of {spec} does not {failed.doing} in a fresh process: {failed.error}"
    message = f"{failed.line}\n  {what}" if failed.line else what
    if built.process_group:
        message += group_was_made(spec)
    elif is_advised(failed.error):
        message += row_for(failed.error)
    elif failed.missing:
        message += _missing(failed.missing)
    else:
        advice = _ADVICE.get(failed.trouble)
        message += (f"\n  What to do: {advice}" if advice else "") + row_for(failed.error)
    if failed.trouble is Trouble.NOT_SERVED:  # loading and answering worked
        return PackError(message, failed.user_traceback)
    message += _left_out({name: line for name, line in built.hidden.items() if name not in failed.missing})
    unseen = built.unseen
    if unseen:
        message += (
            f"\n  Imported here and not in the archive: {', '.join(unseen[:_SHOWN])}"
            + (f" and {len(unseen) - _SHOWN} more" if len(unseen) > _SHOWN else "")
            + ". What is imported by a name that is computed (pkgutil, entry points, a configuration) is "
            "not seen: if the model needs it, import it by an import statement too"
        )
    return PackError(message, failed.user_traceback)


def _left_out(hidden: Mapping[str, str]) -> str:
    """List hidden files: code may continue without a file, such as settings, and fail later."""
    shown = list(hidden.items())[:_SHOWN]
    return "".join(
        f"\n  Read here and not in the archive, as a hidden file: {name} ({line}); --data '{name}' puts it in"
        for name, line in shown
    )


def _missing(missing: Mapping[str, str]) -> str:
    """List files that the archive's code did not find beside itself, and how to add them."""
    shown = list(missing.items())[:_SHOWN]
    said = "".join(f"\n    {name} ({line})" for name, line in shown)
    more = f"\n    and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    options = " ".join(f"--data '{name}'" for name, _ in shown)
    return (
        f"\n  Its code looked for what your project has and the archive has not:{said}{more}\n"
        f"  What to do: {options}, and have the code look beside __file__, not in the working "
        "directory; a name that ends in a slash is a folder with all that is in it"
    )


def _add(seconds: dict[str, float], more: Mapping[str, float]) -> None:
    for what, spent in more.items():
        seconds[what] = seconds.get(what, 0.0) + spent
