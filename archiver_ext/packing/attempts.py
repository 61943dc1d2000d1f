"""Builds an archive and tries it, repeatedly, until it works or cannot be made to work.

Some dependencies appear only when the archive is loaded: native calls at import, class attributes,
annotations. If a decision of the rules was wrong, it is corrected, and the archive is built again. Decisions
of the user, by option or plan, are never changed.

Imports neither torch nor the user's code, which run in child processes.
"""

from __future__ import annotations

import glob
import sys
import time
from collections.abc import Mapping
from dataclasses import fields, replace
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
    Findings,
    TrialFailure,
    TrialJob,
    TrialResult,
    Trouble,
    run_step,
)
from interpool.archiver_ext.packing.known_failures import group_was_made, is_advised, row_for
from interpool.archiver_ext.packing.options import PackKeywords, PackOptions
from interpool.archiver_ext.packing.plan import Plan
from interpool.archiver_ext.packing.reports import PlanReport
from interpool.archiver_ext.packing.serving_choices import Choices
from interpool.archiver_ext.packing.write.members import add_request
from interpool.archiver_ext.verify.serving_side import FoundRequest
from interpool.native.archive.format import Origin, Serving

ATTEMPTS = 8
_SHOWN = 5

_ADVICE = {
    Trouble.DIFFERS: (
        "make the answer depend on nothing but the inputs and the weights, widen --rtol and --atol, or leave "
        "the self-test out with --no-inputs. The seeds of torch, numpy and random are set. What building the "
        "model leaves in modules, as in a registry, is not in the archive: make it when they are imported"
    ),
    Trouble.MOCKED: "take the mocked module from the server with --extern instead",
    Trouble.FILE_MISSING: (
        "open files of the project by a path that starts at __file__, or with importlib.resources. A path "
        "relative to the working directory, or on this machine, leads elsewhere on a server"
    ),
    Trouble.LOOKED_OUTSIDE: (
        "let the archive's own code import it; an installed library, and sys.modules by its "
        "plain name, see only what is installed"
    ),
}


def build_and_try(spec: str, given: PackKeywords, workdir: Path) -> PlanReport:
    """Build the archive in ``workdir``, and try it.

    Args:
        spec: the SPEC.
        given: the keyword arguments of pack.
        workdir: an empty directory; afterwards it contains the archive, ARCHIVE_NAME.

    Raises:
        PackError: it cannot be packed as requested.
        NotWorkingError: it can be built, and might work with other decisions.
    """
    options, plan, progress = given.checked(spec), given.plan, given.progress
    # The plan's decisions count as its own, even if the rules or the user made them originally.
    proposals = plan.proposals if plan is not None else ()
    corrections = Corrections([replace(each, origin=Origin.PLAN) for each in proposals])
    seconds: dict[str, float] = {}
    for attempt in range(1, ATTEMPTS + 1):
        progress(f"building {spec}" + (f", attempt {attempt}" if attempt > 1 else ""))
        job = BuildJob(
            spec,
            options,
            workdir / ARCHIVE_NAME,
            planned_data=None if plan is None else dict(plan.data),
            decisions=[*corrections.decisions.values()],
            needed=corrections.needed,
        )
        result = run_step(BUILDING, job, "building")
        if result.refusal is not None:
            changed = corrections.after_refusal(result.refusal.broken, result.refusal.proposals)
            error = PackError(result.refusal.message, result.refusal.user_traceback)
            known: BuildRefusal | Built = result.refusal
        else:
            known = built = _built(result)
            _add(seconds, built.seconds)
            progress(f"loading {spec} in a fresh process")
            started = time.monotonic()
            tried = _try(options, plan, workdir, built)
            _add(seconds, {"trial": time.monotonic() - started})
            if not tried.failures:
                if tried.request is not None:
                    add_request(workdir / ARCHIVE_NAME, tried.request)
                serving = _served(built, tried.request)
                notes = tried.request.notes if tried.request is not None else []
                found = {each.name: getattr(built, each.name) for each in fields(Findings)}
                found |= {"serving": serving, "warnings": [*built.warnings, *notes], "seconds": seconds}
                return PlanReport(
                    **found,
                    spec=spec,
                    plan=_plan(spec, given, built, _choices(serving)),
                    attempts=attempt,
                    corrections=corrections.made,
                    request=tried.request,
                )
            changed = corrections.after_trial(tried.failures, built.proposals)
            error = _trial_error(spec, tried.failures[0], built)
        if plan is not None or not changed:
            if known.proposals or known.data:
                raise NotWorkingError(error, _plan(spec, given, known, options.serving))
            raise error
    said = f"{spec}: still no working archive after {ATTEMPTS} attempts; last: {error}"
    advice = "  What to do: decide about the packages above with --extern, --intern or --mock"
    raise NotWorkingError(PackError(f"{said}\n{advice}"), _plan(spec, given, known, options.serving))


class NotWorkingError(PackError):
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


def _plan(spec: str, given: PackKeywords, known: Built | BuildRefusal, serving: Choices) -> Plan:
    inputs = given.inputs or (given.plan.inputs if given.plan is not None else "")
    return Plan(spec, inputs, known.data, tuple(known.proposals), serving)


def _try(options: PackOptions, plan: Plan | None, workdir: Path, built: Built) -> TrialResult:
    inside = {name for name, done in built.modules.items() if done["action"] in ("intern", "mock")}
    own = {top_of(name) for name in built.sources} - sys.stdlib_module_names
    job = TrialJob(
        archive=workdir / ARCHIVE_NAME,
        root=options.project,
        project=sorted(own),
        left_out=sorted({*built.own} - own),
        installed=sorted({top_of(name) for name in inside} - own),
        extern=[name for name, done in built.modules.items() if done["action"] == "extern"],
        sources=built.sources,
        bases=built.bases,
        open_to={} if plan is not None else open_decisions(built.proposals),
        serve_check=options.serve_check,
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
    elif failed.missing or failed.refused:
        message += _missing(failed.missing) if failed.missing else ""
        message += _refused(failed.refused) if failed.refused else ""
    else:
        advice = _ADVICE.get(failed.trouble)
        message += (f"\n  What to do: {advice}" if advice else "") + row_for(failed.error)
    if failed.trouble is Trouble.NOT_SERVED:  # loading and answering worked
        return PackError(message, failed.user_traceback)
    hidden = built.hidden.items()
    message += _left_out({name: line for name, line in hidden if glob.escape(name) not in failed.missing})
    unseen = built.unseen
    if unseen:
        message += (
            f"\n  Imported here and not in the archive: {', '.join(unseen[:_SHOWN])}"
            + (f" and {len(unseen) - _SHOWN} more" if len(unseen) > _SHOWN else "")
            + ". What is imported by a name that is computed (pkgutil, entry points, a configuration) is "
            "not seen. If the model needs it, import it by an import statement too"
        )
    return PackError(message, failed.user_traceback)


def _left_out(hidden: Mapping[str, str]) -> str:
    """List hidden files: code may continue without a file, such as settings, and fail later."""
    shown = list(hidden.items())[:_SHOWN]
    return "".join(
        f"\n  Read here and not in the archive, as a hidden file: {name} ({line}); "
        f"--data '{glob.escape(name)}' puts it in"
        for name, line in shown
    )


def _missing(missing: Mapping[str, str]) -> str:
    """List files that the archive's code did not find beside itself, and how to add them."""
    shown = list(missing.items())[:_SHOWN]
    said = "".join(f"\n    {name} ({line})" for name, line in shown)
    more = f"\n    and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    options = " ".join(f"--data '{name}'" for name, _ in shown)
    return (
        f"\n  Its code looked for files that are in your project, but not in the archive:{said}{more}\n"
        f"  What to do: {options}, and have the code look beside __file__, not in the working "
        "directory. A name that ends in a slash is a folder with all that is in it"
    )


def _refused(refused: Mapping[str, str]) -> str:
    """List files of the project that the archive's code tried to open by their paths on this machine."""
    shown = [f"{path} ({line})" if line else path for path, line in refused.items()][:_SHOWN]
    more = [f"and {len(refused) - _SHOWN} more"] if len(refused) > _SHOWN else []
    return (
        "\n  Its code looked for files of your project by their paths on this machine:"
        + "".join(f"\n    {each}" for each in shown + more)
        + "\n  What to do: make the path from __file__ when the file is opened, or use importlib.resources. "
        "An object that holds a path is packed with the path that it had here"
    )


def _add(seconds: dict[str, float], more: Mapping[str, float]) -> None:
    for what, spent in more.items():
        seconds[what] = seconds.get(what, 0.0) + spent
