"""Verifies an archive, in this order: structure, manifest, digests, signature, externs, self-test.

No code of the archive runs before the self-test, which is the last stage and runs in a child process. A stage
that refuses the archive raises its own subclass of ArchiveError.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from interpool.archiver_ext.mar.reading import FoundArchive, find_archive
from interpool.archiver_ext.verify.externs import check_externs
from interpool.archiver_ext.verify.self_testing import self_test_apart, was_changed
from interpool.archiver_ext.verify.signature_check import verify_signature
from interpool.archiver_ext.verify.signing import signature_bytes, signature_state
from interpool.native.archive.reader import (
    MANIFEST_MEMBER,
    check_digests,
    read_manifest,
    read_member,
    read_records,
)
from interpool.native.errors import ArchiveError, ManifestError, SignatureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from interpool.native.archive.format import Manifest

STAGES = ("structure", "manifest", "digests", "signature", "externs", "self-test")

Watch = Callable[[str, IO[bytes]], contextlib.AbstractContextManager[object]]
"""Context manager for progress, entered for each stage with its name and the archive's file."""


@dataclass
class Stage:
    """One stage of a verification.

    Attributes:
        name: one of STAGES.
        checked: describes the check; "" if there was none.
        skipped: why there was no check, or "".
        warnings: each starts with its rule in brackets.
        seconds: wall time.
    """

    name: str
    checked: str = ""
    skipped: str = ""
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class VerifyReport:
    """The result of a verification.

    Attributes:
        archive: its name; ``m.mar (m.ptpkg in it)`` for one inside a .mar.
        size: of the archive, in bytes.
        stages: in order; the last one is the one that refused, if any.
        signed_by: the fingerprint of the key whose signature was checked, or "".
        refusal: the error that refused it, or None.
    """

    archive: str
    size: int = 0
    stages: list[Stage] = field(default_factory=list)
    signed_by: str = ""
    refusal: ArchiveError | None = None

    @property
    def warnings(self) -> list[str]:
        """The warnings of all stages."""
        return [warning for stage in self.stages for warning in stage.warnings]

    def as_dict(self) -> dict[str, Any]:
        """Return a form for JSON."""
        error = self.refusal
        refusal = None
        if error is not None:
            refusal = {"error": type(error).__name__, "rule": error.rule, "message": str(error)}
        return {
            "archive": self.archive,
            "verified": error is None,
            "size": self.size,
            "signed_by": self.signed_by,
            "stages": [asdict(stage) for stage in self.stages],
            "refusal": refusal,
        }


def verify_archive(
    path: Path,
    *,
    keys: Sequence[Path] = (),
    require_signature: bool = False,
    self_test: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    watch: Watch | None = None,
) -> VerifyReport:
    """Verify an archive, or the one inside a .mar of any format.

    Args:
        path: ``m.ptpkg``, ``m.mar``, ``m.tar.gz`` or a no-archive directory.
        keys: PEM files of public keys; with any, the archive must be signed by one of them.
        require_signature: refuse a call without keys.
        self_test: whether to load the archive and run its self-test, which runs its code.
        rtol: relative tolerance of the answers; default: the manifest's.
        atol: absolute tolerance of the answers; default: the manifest's.
        watch: see Watch.

    Raises:
        ArchiveError: a subclass gives the reason: StructureError, ManifestError, DigestError, SignatureError,
            ExternError, PickleError, SelfTestError. ``report_of(error)`` gives the stages up to there.
    """
    report = VerifyReport(str(path))
    try:
        if require_signature and not keys:
            raise SignatureError(
                f"{path}: a signature is required, and no key was given: without one it proves nothing",
                "no-key",
            )
        with find_archive(path) as found:
            report.archive = found.shown
            _Verification(found, report, watch).run(keys, self_test, rtol, atol)
    except ArchiveError as error:
        report.refusal = error
        error.report = report  # type: ignore[attr-defined]
        raise
    return report


def report_of(error: ArchiveError) -> VerifyReport | None:
    """Return the report of the verification that raised ``error``: the stages up to the refusal."""
    return getattr(error, "report", None)


class _Verification:
    def __init__(
        self,
        found: FoundArchive,
        report: VerifyReport,
        watch: Watch | None,
    ) -> None:
        self._found = found
        self._file = found.file
        self._shown = found.shown
        self._report = report
        self._watch = watch
        self._state = _identity(os.fstat(found.file.fileno()))

    def run(self, keys: Sequence[Path], self_test: bool, rtol: float | None, atol: float | None) -> None:
        shown, file = self._shown, self._file
        self._report.size = os.fstat(file.fileno()).st_size
        with self._stage("structure") as stage:
            records = read_records(shown, file)
            stage.checked = f"{len(records)} members, {self._report.size:,} bytes"
        with self._stage("manifest") as stage:
            manifest = required_manifest(shown, read_manifest(shown, file, records))
            made = manifest["made_with"]
            stage.checked = (
                f"schema {manifest['schema']}, {manifest['entry']['kind']}, made with Python "
                f"{made['python']}, torch {made['torch']}"
            )
        with self._stage("digests") as stage:
            check_digests(shown, file, records, manifest)
            stage.checked = f"SHA-256 of {len(manifest['files'])} members"
        with self._stage("signature") as stage:
            manifest_bytes = read_member(shown, file, records[MANIFEST_MEMBER])
            if keys:
                bundle = signature_bytes(shown, file, records)
                self._report.signed_by = verify_signature(manifest_bytes, bundle, keys, shown)
                stage.checked = f"signed by key {self._report.signed_by}"
            else:
                stage.skipped = f"no key was given; {signature_state(records, file)}"
        with self._stage("externs") as stage:
            stage.warnings = check_externs(shown, manifest)
            count = len(manifest["externs"])
            stage.checked = f"{count} distribution{'' if count == 1 else 's'} installed here"
        with self._stage("self-test") as stage:
            if self_test:
                self._self_test(stage, manifest, manifest_bytes, rtol, atol)
            else:
                stage.skipped = "not asked for"
            self._require_unchanged()

    def _self_test(
        self, stage: Stage, manifest: Manifest, manifest_bytes: bytes, rtol: float | None, atol: float | None
    ) -> None:
        found = self._found
        test = manifest["self_test"]
        if not self_test_apart(found.path, found.shown, manifest_bytes, rtol, atol) or test is None:
            stage.checked = "loaded in a fresh interpreter"
            stage.warnings = ["[no-self-test] it holds no example inputs: only its loading was tested"]
            return
        rtol, atol = test["rtol"] if rtol is None else rtol, test["atol"] if atol is None else atol
        stage.checked = (
            f"a fresh interpreter gives the answers that it gave when it was made "
            f"(rtol {rtol:g}, atol {atol:g}, seed {test['seed']})"
            + (", and to its request, too" if manifest["request"] is not None else "")
        )

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[Stage]:
        stage = Stage(name)
        self._report.stages.append(stage)
        started = time.monotonic()
        try:
            with self._watch(name, self._file) if self._watch else contextlib.nullcontext():
                yield stage
        finally:
            stage.seconds = round(time.monotonic() - started, 4)

    def _require_unchanged(self) -> None:
        """Check that the path still refers to the opened file: the tested archive is the hashed one."""
        try:
            now = _identity(os.stat(self._found.path))
        except OSError:
            now = ()
        if now != self._state:
            raise was_changed(self._shown)


def _identity(info: os.stat_result) -> tuple[int, ...]:
    return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)


# ---- shared with the server -------------------------------------------------------------------


def required_manifest(archive: str, manifest: Manifest | None) -> Manifest:
    """Return the manifest.

    Args:
        archive: its name, for messages.
        manifest: the result of read_manifest.

    Raises:
        ManifestError: the archive has none.
    """
    if manifest is None:
        raise ManifestError(
            f"{archive} has no manifest ({MANIFEST_MEMBER}), so nothing in it can be checked: it was "
            "not made by interpool pack",
            "no-manifest",
        )
    return manifest
