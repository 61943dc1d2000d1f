"""Runs an archive's self-test in a private interpreter, as it is served.

``verify`` runs it in a child process, which is this module as a program. The server runs ``run_self_test`` in
the first interpreter that loads the model.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from interpool.native import errors
from interpool.native.archive.format import member_name
from interpool.native.archive.reader import MANIFEST_MEMBER, check_digests, read_member
from interpool.native.archive.typed_json import strict_loads, to_json, typed
from interpool.native.child_process import ChildError, Program, run, serve
from interpool.native.errors import ArchiveError, SelfTestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interpool.native.archive.format import Manifest, RequestRecord, SelfTest
    from interpool.native.inside.packages import HermeticPackage

_SHOWN = 10


def run_self_test(
    package: HermeticPackage,
    manifest: Manifest,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Load the entry again, call it with the self-test's inputs, and compare the answers.

    For code in a private interpreter. The test has its own entry and weights, and restores the state of
    random numbers. A handler gets the context of packing: TorchServe's, with an empty model directory.

    Args:
        package: the archive.
        manifest: its manifest, which contains a self-test.
        rtol: relative tolerance; default: the manifest's.
        atol: absolute tolerance; default: the manifest's.

    Raises:
        SelfTestError: the answers differ, or the call raised.
        Exception: raised while the entry was loaded.
    """
    from interpool.archiver_ext.verify.self_test import differences, replay

    test = manifest["self_test"]
    assert test is not None
    where = manifest["entry"]
    entry = package.make(where["package"], where["resource"])
    held = package.make(test["package"], test["resource"])
    if not isinstance(held, dict) or not {"args", "kwargs", "expected"} <= held.keys():
        raise SelfTestError(
            f"{package.shown}: its self-test is not one that `interpool pack` writes", "self-test"
        )
    with _same_random_numbers():
        try:
            got = replay(entry, where["kind"], held, test, manifest["serving"])
        except Exception as error:
            raise SelfTestError(
                f"{package.shown}: its self-test raised {type(error).__name__}: {error}", "self-test-raised"
            ) from error
    rtol, atol = test["rtol"] if rtol is None else rtol, test["atol"] if atol is None else atol
    found = differences(held["expected"], got, rtol, atol)
    if not found and manifest["request"] is not None:
        with _same_random_numbers():
            tolerant: SelfTest = {**test, "rtol": rtol, "atol": atol}
            _repeat_request(package, manifest, manifest["request"], held, tolerant)
    if found:
        more = f"\n  and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise SelfTestError(
            f"{package.shown}: it answers its own example inputs differently than when it was made "
            f"(rtol {rtol:g}, atol {atol:g}):\n  " + "\n  ".join(found[:_SHOWN]) + more,
            "self-test",
        )


def _repeat_request(
    package: HermeticPackage, manifest: Manifest, request: RequestRecord, held: Any, test: SelfTest
) -> None:
    from interpool.archiver_ext.verify.serving_side import serving_side

    where = manifest["entry"]
    name = member_name(request["package"], request["resource"])
    with package.reader.open_file() as file:
        body = read_member(package.shown, file, package.reader.records[name])
    found: list[str] = serving_side().repeat_request(
        lambda: package.make(where["package"], where["resource"]),
        where["kind"],
        held,
        test,
        manifest["serving"],
        request,
        body,
    )
    if found:
        raise SelfTestError(
            f"{package.shown}: the request in it is not answered as when it was made:\n  "
            + "\n  ".join(found[:_SHOWN]),
            "self-test-request",
        )


@contextlib.contextmanager
def _same_random_numbers() -> Iterator[None]:
    import random

    import torch

    state = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(state)
            if numpy is not None:
                numpy.random.set_state(numpy_state)


# ---- in a child process -----------------------------------------------------------------------


@dataclass(frozen=True)
class SelfTestJob:
    """An archive to load and to test.

    Attributes:
        archive: the file.
        shown: its name, for messages.
        manifest: SHA-256, in hex, of the checked manifest.
        rtol: see run_self_test.
        atol: see run_self_test.
    """

    archive: Path
    shown: str
    manifest: str
    rtol: float | None
    atol: float | None


@dataclass(frozen=True)
class Raised:
    """An error of another process.

    Attributes:
        type_name: name of its class.
        message: its message, without the rule.
        rule: of an ArchiveError.
        traceback: without internal frames.
    """

    type_name: str
    message: str
    rule: str
    traceback: str


@dataclass(frozen=True)
class SelfTestResult:
    """The result of a self-test.

    Attributes:
        tested: whether there was a self-test; without one, the archive was only loaded.
        error: why it was refused.
    """

    tested: bool = False
    error: Raised | None = None


PROGRAM: Final = Program(__spec__.name, SelfTestJob, SelfTestResult)


def self_test_apart(
    archive: Path,
    shown: str,
    manifest: bytes,
    rtol: float | None,
    atol: float | None,
) -> bool:
    """Load an archive and run its self-test in a new interpreter of a child process.

    Args:
        archive: the file; its structure and digests have been checked.
        shown: its name, for messages.
        manifest: the checked bytes of its manifest. The file may change before the test, so only code that
            matches this manifest runs.
        rtol: see run_self_test.
        atol: see run_self_test.

    Returns:
        Whether there was a self-test; without one, the archive was only loaded.

    Raises:
        ArchiveError: SelfTestError, or the reason for which loading failed.
    """
    job = SelfTestJob(archive.absolute(), shown, hashlib.sha256(manifest).hexdigest(), rtol, atol)
    try:
        result = run(PROGRAM, job)
    except ChildError as error:
        raise SelfTestError(
            f"{shown}: the process that ran its self-test {error}; its own output above says more",
            "self-test-crashed",
        ) from None
    if result.error is not None:
        raise _refusal(result.error, shown)
    return result.tested


def _refusal(error: Raised, shown: str) -> ArchiveError:
    kind = getattr(errors, error.type_name, None)
    if isinstance(kind, type) and issubclass(kind, ArchiveError):
        return kind(error.message, error.rule)
    return SelfTestError(
        f"{shown}: it does not load here: {error.type_name}: {error.message}\n{error.traceback}",
        "self-test-load",
    )


def run_in_interpreter(job_text: str) -> str:
    """Run a self-test job in a private interpreter; takes the job and returns the result as JSON."""
    from interpool.archiver_ext.tracebacks import readable_traceback
    from interpool.native.inside.packages import open_package

    job: SelfTestJob = typed(strict_loads(job_text), SelfTestJob)
    try:
        package = open_package(job.archive, shown=job.shown)
        manifest = _require_checked(package, job.manifest)
        if manifest["self_test"] is None:
            package.load_pickle(manifest["entry"]["package"], manifest["entry"]["resource"])
            return to_json(SelfTestResult())
        run_self_test(package, manifest, job.rtol, job.atol)
    except ArchiveError as error:
        message = error.message
        if isinstance(error, SelfTestError) and error.__cause__ is not None:
            message = f"{message}\n{readable_traceback(error.__cause__)}"
        return to_json(SelfTestResult(error=Raised(type(error).__name__, message, error.rule, "")))
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the model may raise any exception)
        raised = Raised(type(error).__name__, str(error), "", readable_traceback(error))
        return to_json(SelfTestResult(error=raised))
    return to_json(SelfTestResult(tested=True))


def _require_checked(package: HermeticPackage, manifest_digest: str) -> Manifest:
    """Return the manifest of the snapshot that will run, if it is the checked one."""
    manifest = package.reader.manifest
    content = b"" if manifest is None else package.reader.get_record(MANIFEST_MEMBER)
    if manifest is None or hashlib.sha256(content).hexdigest() != manifest_digest:
        raise was_changed(package.shown)
    with package.reader.open_file() as file:
        check_digests(package.shown, file, package.reader.records, manifest)
    return manifest


def was_changed(archive: str) -> ArchiveError:
    """Return the error for an archive that has changed since it was checked."""
    return ArchiveError(
        f"{archive} was changed while it was verified; verify it when no program writes to it", "changed"
    )


def _test(job: SelfTestJob) -> Iterator[SelfTestResult]:
    """Run the test in a pool of one, in the child process."""
    from interpool.native.pool.manager import InterpreterManager

    try:
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            test = session.global_(__spec__.name, run_in_interpreter.__name__)
            result: SelfTestResult = typed(strict_loads(str(test(to_json(job)).to_value())), SelfTestResult)
    except Exception as error:  # noqa: BLE001 (a failure is a result)
        result = SelfTestResult(error=Raised(type(error).__name__, str(error), "", traceback.format_exc()))
    yield result


if __name__ == "__main__":
    serve(PROGRAM, _test)
