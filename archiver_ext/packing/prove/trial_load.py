"""The process that proves that an archive loads and answers without the project's code.

Run as a program by ``run_step``, on a TrialJob.
"""

from __future__ import annotations

import errno
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.archiver_ext.packing.decide.corrections import blamed
from interpool.archiver_ext.packing.dotted_names import top_of, with_parents
from interpool.archiver_ext.packing.jobs import TRIAL_LOAD, TrialFailure, TrialJob, TrialResult, Trouble
from interpool.archiver_ext.packing.prove.hidden_distributions import (
    hide_distributions,
    is_editable_in,
    top_levels,
)
from interpool.archiver_ext.packing.prove.missing_files import MissingFiles
from interpool.archiver_ext.packing.prove.project_files import ProjectFiles
from interpool.archiver_ext.source_lines import source_line
from interpool.archiver_ext.tracebacks import name_in_package, readable_traceback
from interpool.archiver_ext.verify.self_test import differences, replay
from interpool.archiver_ext.verify.serving_side import serving_side
from interpool.native.archive.format import ENTRY_PACKAGE, ENTRY_RESOURCE
from interpool.native.archive.importer import HermeticImporter
from interpool.native.archive.reader import read_manifest, read_records
from interpool.native.child_process import serve
from interpool.native.upstream.torch_private import (
    FROM_PACKAGE,
    ExternNode,
    PyTorchFileReader,
    mocked_in,
    use_up_storage_warning,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from importlib import metadata
    from types import FrameType, ModuleType, TracebackType

    from interpool.archiver_ext.verify.serving_side import FoundRequest, ServeCheck
    from interpool.native.archive.format import Manifest, SelfTest

_BACKPORT = "importlib_metadata"
_FIND_SPEC = importlib.util.find_spec.__code__


class Blocker(importlib.abc.MetaPathFinder):
    """Refuses imports that would succeed only on this machine; allows callers that only need a spec.

    Args:
        project: top-level names of the project's own modules in the archive. They are refused to all code
            except installed code of the same name, which runs only if the archive imports it from the server.
        left_out: top-level names of the project's other modules. They are refused to all code except the
            project's, which runs only if the archive imports it from the server.
        installed: top-level names of other archived modules. They are refused to code from the archive only,
            because installed code of a server has them installed, too.
        extern: modules that the archive imports from the server; these and their submodules are never
            refused.

    Attributes:
        refusals: every error that it has raised.
        let_through_by_archive: packages that the archive imports from the server after a correction.
    """

    def __init__(
        self,
        project: Iterable[str],
        left_out: Iterable[str],
        installed: Iterable[str],
        extern: Iterable[str],
    ) -> None:
        self._project = frozenset(project)
        self._left_out = frozenset(left_out)
        self._installed = frozenset(installed)
        self._extern = set(extern)
        self._above_extern = {each for name in self._extern for each in with_parents(name)}
        self.refusals: list[ModuleNotFoundError] = []
        self.let_through_by_archive: list[str] = []

    def let_through(self, package: str) -> None:
        """Stop refusing a package, because the archive will import it from the server."""
        self._extern.add(package)
        self._above_extern.update(with_parents(package))
        self.let_through_by_archive.append(package)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Raise ModuleNotFoundError for a blocked name; leave other names to other finders.

        Args:
            fullname: dotted name of the module to import.
            path: the parent package's search path; ignored.
            target: the module to reload; ignored.

        Returns:
            None, so that the import system asks the next finder.

        Raises:
            ModuleNotFoundError: the name is blocked for the code that imports it.
        """
        top = top_of(fullname)
        is_extern = fullname in self._above_extern or not self._extern.isdisjoint(with_parents(fullname))
        if is_extern or _is_spec_request():
            return None
        by_archive, by = _asking(sys._getframe(1))
        if top in self._left_out and by not in self._project | self._left_out:
            said = f"{fullname} is the project's, but not in the archive"
        elif (top in self._project and by != top) or (top in self._installed and by_archive):
            said = f"{fullname} is in the archive, but the code looked for it outside"
        else:
            return None
        self.refusals.append(ModuleNotFoundError(said, name=fullname))
        raise self.refusals[-1]

    def hides(self, folders: Iterable[Path], caller: FrameType, found: metadata.Distribution) -> bool:
        """Return whether ``importlib.metadata`` must not find a distribution, as a server need not have it.

        Args:
            folders: the project's.
            caller: the frame that searches.
            found: the distribution.
        """
        tops, own = top_levels(found), self._project | self._left_out
        if not tops.isdisjoint(self._above_extern):
            return False
        by_archive, by = _asking(caller)
        if is_editable_in(found, folders) or (tops and tops <= own):
            return by not in own
        return by_archive and not tops.isdisjoint(self._installed)


def _is_spec_request() -> bool:
    """Return whether ``importlib.util.find_spec`` requests the spec, and not an import."""
    finding = sys._getframe(2).f_back
    return finding is not None and finding.f_code is _FIND_SPEC


def _asking(frame: FrameType | None) -> tuple[bool, str]:
    """Return whether an archive's code asks the import system, or else the top-level name of the module."""
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    found: Mapping[str, object] = {} if frame is None else frame.f_globals
    by_archive = bool(found.get(FROM_PACKAGE))
    return by_archive, "" if by_archive else top_of(str(found.get("__name__")))


def trial_load(job: TrialJob, blocker: Blocker, searched: MissingFiles) -> TrialFailure | FoundRequest | None:
    """Load the archive's entry as a server does, and run the self-test if there is one.

    Args:
        job: the archive, and the places of its sources.
        blocker: refuses imports during the trial.
        searched: records files that are searched for.

    Returns:
        The failure; or a working request, if the job has a serve check; or None.

    Raises:
        ArchiveError: the archive's structure or its manifest is damaged.
        OSError: the archive cannot be read.
    """
    doing = "load"
    importer = None
    archive = job.archive
    bases = {name: Path(base) for name, base in job.bases.items()}
    with archive.open("rb") as file:
        manifest = read_manifest(archive.name, file, read_records(archive.name, file))
    assert manifest is not None, "the building step has just written it"
    try:
        importer = HermeticImporter(PyTorchFileReader(str(archive)), str(archive), manifest)
        for package in blocker.let_through_by_archive:
            _take_from_outside(importer, package)
        backport = manifest["modules"].get(_BACKPORT)
        if backport is not None and backport["action"] != "mock":
            hide_distributions(importer.import_module(_BACKPORT), partial(blocker.hides, _folders(job)))
        entry = importer.load_pickle(ENTRY_PACKAGE, ENTRY_RESOURCE)
        if manifest["self_test"] is None:
            return None
        doing = "answer"
        differing = _self_test(importer, entry, manifest, manifest["self_test"])
        if differing:
            missing = searched.missing(_folder_of(importer), bases)
            said = "; ".join(differing[:3])
            return TrialFailure(doing, Trouble.DIFFERS, said, missing=missing, refused=searched.refused())
        del entry
        if not job.serve_check:
            return None
        doing = "answer requests"
        return _serve_check(importer, manifest, manifest["self_test"])
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the user's code may raise any exception)
        trouble, mocked = find_trouble(error, blocker)
        return TrialFailure(
            doing,
            trouble,
            f"{type(error).__name__}: {error}",
            line=_own_line(error.__traceback__, job.sources),
            user_traceback=readable_traceback(error, lambda name: _shown(name, job.sources)),
            modules=_modules(error.__traceback__),
            mocked=mocked,
            missing=searched.missing(_folder_of(importer), bases),
            refused=searched.refused(),
        )
    finally:
        if importer is not None:
            importer.close()


def _serve_check(
    importer: HermeticImporter, manifest: Manifest, test: SelfTest
) -> TrialFailure | FoundRequest:
    entry, held = manifest["entry"], importer.load_pickle(test["package"], test["resource"])
    checked: ServeCheck = serving_side().find_request(
        lambda: importer.load_pickle(ENTRY_PACKAGE, ENTRY_RESOURCE),
        entry["kind"],
        held,
        test,
        manifest["serving"],
    )
    return checked.found or TrialFailure("answer requests", Trouble.NOT_SERVED, checked.refusal)


def _take_from_outside(importer: HermeticImporter, package: str) -> None:
    *parents, last = package.split(".")
    node: Any = importer.root
    for parent in parents:
        node = node.children[parent]
    node.children[last] = ExternNode()


def _folders(job: TrialJob) -> list[Path]:
    """Return the project's folders."""
    own = {*job.project, *job.left_out}.difference(job.extern)
    return [job.root, *(Path(base, name) for name, base in job.bases.items() if name in own)]


def _folder_of(importer: HermeticImporter | None) -> Path:
    """Return the folder of the archive's extracted files."""
    return Path.cwd() if importer is None or importer.folder is None else importer.folder


def find_trouble(error: BaseException, blocker: Blocker) -> tuple[Trouble, str]:
    """Return the kind of an error or of its causes, and the name of a mock that was used.

    Args:
        error: the error.
        blocker: the finder of the trial, whose refusals are recognized.
    """
    for each in _causes(error):
        if _file_is_missing(each):
            return Trouble.FILE_MISSING, ""
        if any(each is refusal for refusal in blocker.refusals):
            return Trouble.LOOKED_OUTSIDE, ""
        if mocked := _mocked(each):
            return Trouble.MOCKED, mocked
    return Trouble.RAISED, ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, its causes and contexts, including suppressed ones."""
    seen: list[BaseException] = []
    while error is not None and not any(error is each for each in seen):
        seen.append(error)
        error = error.__cause__ or error.__context__
    yield from seen


def _file_is_missing(error: BaseException) -> bool:
    # C++ and Rust libraries raise other types, with the C library's text.
    return isinstance(error, FileNotFoundError) or os.strerror(errno.ENOENT) in str(error)


def _mocked(error: BaseException) -> str:
    """Return the dotted name of the mocked object that raised the error; "" if none did."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    name = mocked_in(frames[-1], name_in_package(frames[-1].f_code.co_filename)) if frames else ""
    return name_in_package(name) or name


def _self_test(importer: HermeticImporter, entry: Any, manifest: Manifest, test: SelfTest) -> list[str]:
    held = importer.load_pickle(test["package"], test["resource"])
    got = replay(entry, manifest["entry"]["kind"], held, test, manifest["serving"])
    return differences(held["expected"], got, test["rtol"], test["atol"])


def _modules(tb: TracebackType | None) -> list[str]:
    members = (name_in_package(frame.filename) for frame in traceback.extract_tb(tb))
    return [
        member.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for member in members if member
    ]


def _own_line(tb: TracebackType | None, sources: dict[str, str]) -> str:
    """Return the innermost line of the project in the traceback, or ""."""
    by_member = _members(sources)
    line = ""
    for frame in traceback.extract_tb(tb):
        shown = by_member.get(name_in_package(frame.filename))
        if shown is not None:
            line = source_line(shown, frame.lineno, frame.line)
    return line


def _shown(filename: str, sources: dict[str, str]) -> str:
    member = name_in_package(filename)
    return _members(sources).get(member, f"{member} (in the archive)") if member else filename


def _members(sources: dict[str, str]) -> dict[str, str]:
    return {
        f"{name.replace('.', '/')}{suffix}": shown
        for name, shown in sources.items()
        for suffix in (".py", "/__init__.py")
    }


def try_archive(job: TrialJob) -> Iterator[TrialResult]:
    """Run the trial; a failure is a result, too."""
    use_up_storage_warning()
    sys.path[:] = [entry for entry in sys.path if entry and Path(entry).resolve() != job.root]
    blocker = Blocker(job.project, job.left_out, job.installed, job.extern)
    sys.meta_path.insert(0, blocker)
    hide_distributions(importlib.metadata, partial(blocker.hides, _folders(job)))
    yield try_all(job, blocker)


def try_all(job: TrialJob, blocker: Blocker) -> TrialResult:
    """Run the trial to its end; after a failure caused by a package, continue without that package.

    Args:
        job: as in trial_load.
        blocker: as in trial_load.
    """
    failures: list[TrialFailure] = []
    open_to = dict(job.open_to)
    hidden = ProjectFiles(_folders(job), job.archive.stat().st_ctime_ns)
    searched = MissingFiles(_members(job.sources), hidden)
    while isinstance(outcome := trial_load(job, blocker, searched), TrialFailure):
        package = blamed(outcome, open_to)
        if package or not failures:
            failures.append(outcome)
        if not package:
            return TrialResult(failures)
        del open_to[package]
        blocker.let_through(package)
    return TrialResult(failures, outcome)


if __name__ == "__main__":
    serve(TRIAL_LOAD, try_archive)
