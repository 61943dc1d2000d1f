"""Tries without a server whether a pool can serve an archive, in a process that may crash.

The trial checks what a server checks when the archive is registered. It checks the configuration and, in an
ordinary archive, looks for obstacles in the files. Then it loads the archive in two interpreters, with the
code that serves. That code checks a hermetic archive before anything in it runs.

Run as a program, this module is the process that tries. Its first result says whether its pool has started.
One result for each interpreter follows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interpool.handler.config import HostSettings, ModelSettings, model_manifest
from interpool.handler.errors import SettingsError
from interpool.handler.frontend.shim import is_hermetic
from interpool.handler.host.extracting import extracted
from interpool.handler.host.service_entry import SERVICE_MODULE
from interpool.handler.obstacles import obstacles
from interpool.handler.signature_policy import SignaturePolicy
from interpool.handler.torchserve import WORKER_SCRIPT, installed_ts, load_command
from interpool.handler.worker_token import WorkerToken
from interpool.native.child_process import ChildError, Program, serve, start
from interpool.native.diagnostics.doctor import Check
from interpool.native.diagnostics.import_trial import ending
from interpool.native.directories import REMEDY, WHY_NOT, threads_have_directories
from interpool.native.errors import InterpoolError

_INTERPRETERS = 2
_SECONDS = 600
_START_SECONDS = 300  # a first start makes all private copies
_STAYS = "otherwise TorchServe's own workers serve it, as they do now"


@dataclass(frozen=True)
class _Job:
    """An archive, extracted as TorchServe does it."""

    model_dir: str
    ordinary: bool


@dataclass(frozen=True)
class _Outcome:
    """The outcome of a load; the first one is that of the pool's start."""

    failure: str = ""  # why it failed; "" if it did not
    weights: str = ""  # how the weights' memory is shared, for people
    traces: str = ""  # what the model has left that other models would meet, for people; "" if nothing
    seconds: float = 0.0  # how long the load took


_PROGRAM: Final = Program(__spec__.name, _Job, _Outcome)


def checks(mar: Path) -> Iterator[Check]:
    """Check whether a pool can serve an archive, and yield each result when it is found.

    Args:
        mar: a .mar, a .tar.gz, a ``no-archive`` directory, or a hermetic archive that is in none of these.

    Raises:
        ServeError: it is none of these.
        SettingsError: the environment has settings with which no server starts.
    """
    HostSettings.of_environment()
    with extracted(mar) as directory:
        try:
            manifest = model_manifest(directory)
        except SettingsError as error:
            yield Check(
                "archive", False, str(error), "make it with `interpool archive`, or torch-model-archiver"
            )
            return
        name = f"{manifest.get('modelName')}/{manifest.get('modelVersion')}"
        hermetic = is_hermetic(str(directory))
        what = "hermetic" if hermetic else f"with the handler {manifest.get('handler')}"
        yield Check("archive", True, f"{name}, {what}")
        try:
            ModelSettings.of_model(directory)
        except SettingsError as error:
            yield Check("configuration", False, str(error), "correct it: its registration would answer 400")
            return
        found = [] if hermetic else obstacles(directory)
        for obstacle in found:
            yield Check("obstacle", False, obstacle.why, f"{obstacle.remedy}; {_STAYS}")
        if not hermetic and not threads_have_directories():
            yield Check("working directory", False, WHY_NOT, REMEDY)
        if not found:
            yield from _load(directory, ordinary=not hermetic)


def _load(directory: Path, *, ordinary: bool) -> Iterator[Check]:
    stays = _STAYS if ordinary else "its registration would answer with an error"
    with start(_PROGRAM, _Job(str(directory), ordinary), capture_stderr=True) as child:
        for number in range(1 + _INTERPRETERS):
            allowed = _SECONDS if number else _START_SECONDS
            try:
                outcome = child.result(allowed)
            except ChildError as error:
                outcome = _Outcome(ending(error, allowed))
            where = f"load in interpreter {number}" if number else "private interpreters"
            if outcome.failure:
                hint = f"correct it; {stays}" if number else "interpool doctor"
                yield Check(where, False, outcome.failure, hint)
                break
            if number:
                weights = f"; {outcome.weights}" if outcome.weights else ""
                yield Check(where, True, f"{outcome.seconds:.1f} s{weights}")
            if outcome.traces:
                yield Check("neighbours", True, f"it gets interpreters of its own, as {outcome.traces}")
                break
        child.kill()


# ---- in the process that tries ----------------------------------------------------------------


def _try(job: _Job) -> Iterator[_Outcome]:
    from interpool.native.pool.manager import InterpreterManager

    manifest, settings = model_manifest(job.model_dir), ModelSettings.of_model(job.model_dir)
    command = load_command(str(manifest.get("modelName")), job.model_dir, str(manifest.get("handler")))
    token = WorkerToken(
        stdout=2,
        stderr=2,
        metrics_config=str(installed_ts() / "configs" / "metrics.yaml"),
        refusal="",
        tracebacks=settings.tracebacks,
        failed_load=-1,
        policy=SignaturePolicy.of(HostSettings.of_environment(), settings),
        ordinary=job.ordinary,
        own_directory=True,  # the process's own, as the process has no other model
        model_dir=job.model_dir,
        arguments=[str(installed_ts() / WORKER_SCRIPT)],
        unwatched=settings.unwatched,
    )
    try:
        manager = InterpreterManager(_INTERPRETERS)
    except InterpoolError as error:
        yield _Outcome(str(error))
        return
    yield _Outcome()
    with manager:
        for instance in manager.all_instances():
            with instance.acquire_session() as session:
                session.global_("interpool.native.inside.process_guards", "report_crashes")(all_threads=False)
                began = time.monotonic()
                try_to_load = session.global_(SERVICE_MODULE, "try_to_load")
                failure, traces, weights = try_to_load(token.as_text(), command).to_value()
            yield _Outcome(failure, weights, traces, time.monotonic() - began)
            if traces:
                return


if __name__ == "__main__":
    serve(_PROGRAM, _try)
