"""Runs an archive's self-test where it is served: in a private interpreter.

``verify`` runs it in a process of its own, ``python -P -m interpool.archiver_ext.verify.self_testing``,
which takes a job and gives a result as JSON; the server runs ``run_self_test`` in the
interpreter that loads the model first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.native import errors
from interpool.native.archive.reader import MANIFEST_MEMBER, check_digests
from interpool.native.errors import ArchiveError, SelfTestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interpool.native.archive.format import Manifest
    from interpool.native.inside.packages import HermeticPackage

_SHOWN = 10


def run_self_test(
    package: HermeticPackage,
    manifest: Manifest,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Load the entry anew, call it as its self-test says, and compare the answers.

    For code in a private interpreter. The entry and its weights are the test's own; random
    numbers go on as if nothing had happened. A handler gets the context that it had when it
    was packed: TorchServe's, with an empty directory as the model's.

    Args:
        package: the archive.
        manifest: its manifest, which holds a self-test.
        rtol: relative tolerance; the manifest's by default.
        atol: absolute tolerance; the manifest's by default.

    Raises:
        SelfTestError: the answers differ, or the call raised.
        Exception: what loading the entry raises.
    """
    from interpool.archiver_ext.verify.self_test import differences, replay

    test = manifest["self_test"]
    assert test is not None
    where = manifest["entry"]
    entry = package.make(where["package"], where["resource"])
    held = package.make(test["package"], test["resource"])
    if not isinstance(held, dict) or not {"args", "kwargs", "expected"} <= held.keys():
        raise SelfTestError(
            f"{package.path}: its self-test is not one that `interpool pack` writes", "self-test"
        )
    with _same_random_numbers():
        try:
            got = replay(entry, where["kind"], held, test)
        except Exception as error:
            raise SelfTestError(
                f"{package.path}: its self-test raised {type(error).__name__}: {error}", "self-test-raised"
            ) from error
    rtol, atol = test["rtol"] if rtol is None else rtol, test["atol"] if atol is None else atol
    found = differences(held["expected"], got, rtol, atol)
    if found:
        more = f"\n  and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise SelfTestError(
            f"{package.path}: it answers its own example inputs otherwise than when it was made "
            f"(rtol {rtol:g}, atol {atol:g}):\n  " + "\n  ".join(found[:_SHOWN]) + more,
            "self-test",
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


# ---- in a process of its own ------------------------------------------------------------------


def self_test_apart(
    archive: Path,
    shown: str,
    manifest: bytes,
    rtol: float | None,
    atol: float | None,
) -> bool:
    """Load an archive and run its self-test in a fresh interpreter of a child process.

    Args:
        archive: the file; its structure and digests have been checked.
        shown: its name, for messages.
        manifest: the bytes of its manifest as they were checked. Nothing runs but what that vouches
            for: by the time of the test the file may be another.
        rtol: see run_self_test.
        atol: see run_self_test.

    Returns:
        Whether there was a self-test; without one the archive was loaded and that is all.

    Raises:
        ArchiveError: SelfTestError, or what the load was refused for.
    """
    job = {
        "archive": os.fspath(archive.absolute()),
        "manifest": hashlib.sha256(manifest).hexdigest(),
        "rtol": rtol,
        "atol": atol,
    }
    with tempfile.TemporaryFile("w+") as result:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "interpool.archiver_ext.verify.self_testing", str(result.fileno())],
            input=json.dumps(job),
            text=True,
            stdout=2,  # what the model prints is not verify's output
            pass_fds=[result.fileno()],
            check=False,
        )
        result.seek(0)
        text = result.read()
    if not text:
        raise SelfTestError(
            f"{shown}: the process that ran its self-test ended with status {done.returncode} and no answer; "
            "its own output above says more",
            "self-test-crashed",
        )
    said: dict[str, Any] = json.loads(text)
    if "error" not in said:
        return bool(said["tested"])
    kind = getattr(errors, said["error"], None)
    message = said["message"].replace(str(archive.absolute()), shown)
    if isinstance(kind, type) and issubclass(kind, ArchiveError):
        raise _again(kind, message, said["rule"])
    raise SelfTestError(
        f"{shown}: it does not load here: {said['error']}: {message}\n{said['traceback']}", "self-test-load"
    )


def _again(kind: type[ArchiveError], message: str, rule: str) -> ArchiveError:
    """An error of another process's, whose message has its rule already."""
    return kind(message.removesuffix(f" [{rule}]"), rule)


def run_in_interpreter(job_text: str) -> str:
    """``self_test_apart``'s work, called in a private interpreter; gives its result as JSON."""
    from interpool.archiver_ext.tracebacks import readable_traceback
    from interpool.native.inside.packages import open_package

    job = json.loads(job_text)
    try:
        package = open_package(job["archive"])
        manifest = _require_checked(package, job["manifest"])
        if manifest["self_test"] is None:
            package.load_pickle(manifest["entry"]["package"], manifest["entry"]["resource"])
            return json.dumps({"tested": False})
        run_self_test(package, manifest, job["rtol"], job["atol"])
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- it is the model's code
        cause = error.__cause__ or error
        return json.dumps(
            {
                "error": type(error).__name__,
                "rule": getattr(error, "rule", ""),
                "message": _with_traceback(error, cause, readable_traceback),
                "traceback": readable_traceback(error),
            }
        )
    return json.dumps({"tested": True})


def _require_checked(package: HermeticPackage, manifest_digest: str) -> Manifest:
    """The manifest of the snapshot that is going to run, if it is what was checked."""
    manifest = package.reader.manifest
    content = b"" if manifest is None else package.reader.get_record(MANIFEST_MEMBER)
    if manifest is None or hashlib.sha256(content).hexdigest() != manifest_digest:
        raise was_changed(package.path)
    with package.reader.open_file() as file:
        check_digests(package.path, file, package.reader.records, manifest)
    return manifest


def was_changed(archive: str) -> ArchiveError:
    """For an archive that is no longer what was checked."""
    return ArchiveError(
        f"{archive} was changed while it was verified; verify it again, when nobody writes to it", "changed"
    )


def _with_traceback(error: BaseException, cause: BaseException, readable: Any) -> str:
    if isinstance(error, SelfTestError) and cause is not error:
        return f"{error}\n{readable(cause)}"
    return str(error)


def main(result_fd: int) -> None:
    """The child process: a pool of one, and the test in it."""
    from interpool.native.pool.manager import InterpreterManager

    job = sys.stdin.read()
    try:
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            text = str(session.global_(__spec__.name, run_in_interpreter.__name__)(job).to_value())
    except Exception as error:  # noqa: BLE001 -- a result like any other
        text = json.dumps(
            {
                "error": type(error).__name__,
                "rule": "",
                "message": str(error),
                "traceback": traceback.format_exc(),
            }
        )
    with open(result_fd, "w", encoding="utf-8") as result:
        result.write(text)


if __name__ == "__main__":
    main(int(sys.argv[1]))
