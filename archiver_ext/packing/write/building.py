"""The process that builds the user's object and writes the archive.

In a child process, the user's code has its own ``sys.path`` and cannot disturb the caller. The hash seed is
fixed: sets of strings are pickled in hash order, and equal models must give equal bytes.

Run as a program by ``run_step``, on a BuildJob.
"""

from __future__ import annotations

import contextlib
import glob
import shutil
import sys
import time
import traceback
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.package import PackagingError

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.decide.archive_names import check_names
from interpool.archiver_ext.packing.decide.project_data import find_data, save_data
from interpool.archiver_ext.packing.decide.rules import Rules, Usage
from interpool.archiver_ext.packing.jobs import BUILDING, BuildJob, BuildRefusal, BuildResult, Built, Fault
from interpool.archiver_ext.packing.observe.calls import Calls
from interpool.archiver_ext.packing.observe.computed_imports import ComputedImports
from interpool.archiver_ext.packing.observe.import_time import used_by_loaded
from interpool.archiver_ext.packing.observe.opened_files import OpenedFiles
from interpool.archiver_ext.packing.prove.example_inputs import find_inputs
from interpool.archiver_ext.packing.prove.training_mode import shown, training_layers
from interpool.archiver_ext.packing.serving_choices import choices_beside, serving_of
from interpool.archiver_ext.packing.spec import build_entry, find_spec, user_error
from interpool.archiver_ext.packing.write.explain import (
    broken_modules,
    cause_line,
    dropped_imports,
    explain_failure,
    may_change,
    own_line,
    shown_path,
)
from interpool.archiver_ext.packing.write.exporter import HermeticExporter
from interpool.archiver_ext.packing.write.graph import importers
from interpool.archiver_ext.packing.write.manifest import append_manifest, digests
from interpool.archiver_ext.packing.write.pickling import (
    OUT_OF_THE_PROGRAM,
    explain_unpicklable,
    refuse_torchs_own,
    was_pickling,
)
from interpool.archiver_ext.packing.write.proposals import proposals
from interpool.archiver_ext.tracebacks import readable_traceback
from interpool.archiver_ext.verify.self_test import SEED, Sample, answer
from interpool.archiver_ext.workdir import PLANNING
from interpool.native.archive.format import ENTRY_PACKAGE, ENTRY_RESOURCE, SELF_TEST_RESOURCE, Origin
from interpool.native.archive.zip_structure import MOST_MEMBERS
from interpool.native.child_process import serve
from interpool.native.errors import StructureError
from interpool.native.upstream.torch_private import (
    allow_torchscript,
    found_no_room,
    use_up_storage_warning,
    wants_gradients,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from interpool.archiver_ext.packing.decide.working_trees import WorkingTrees
    from interpool.archiver_ext.packing.options import PackOptions
    from interpool.archiver_ext.packing.plan import Proposal
    from interpool.native.archive.format import EntryKind, SelfTest, Serving


IN_INFERENCE_MODE = (
    "  It ran in inference mode, as modules are served, where nothing can be differentiated\n"
    "  What to do: if its forward differentiates, say so with --grad, by grad = true under [serving] in the "
    'plan, or by serving = {"grad": True} beside the SPEC. Then it runs with gradients, here and when it '
    "is served"
)


class Unpackable(PackError):
    """Modules cannot be packed as decided.

    Attributes:
        refusal: the reasons, and what was decided.
    """

    def __init__(self, refusal: BuildRefusal) -> None:
        super().__init__(refusal.message, refusal.user_traceback)
        self.refusal = refusal


def export(job: BuildJob) -> Built:
    """Build the SPEC's object and write it, with its manifest, to the job's archive.

    The object is pickled before it runs on its example inputs, because running may change it. Modules are
    decided after the run, which shows their use.

    Raises:
        PackError: see build_entry; or the object or a module cannot be packed.
        Unpackable: modules cannot be packed as decided.
    """
    spec, options = job.spec, job.options
    root = options.project
    rules = Rules(root, options.globs(), job.decisions)
    clock = _Clock()
    calls, files, computed = Calls(rules), OpenedFiles(rules), ComputedImports()
    with calls.importing(), files.importing(), computed.noting():
        entry, kind = build_entry(spec, root)
        sample = None if options.inputs is None else find_inputs(spec, kind, root, options.inputs)
    serving = serving_of(options.serving.or_else(choices_beside(find_spec(spec, root), spec)), kind)
    in_training = _evaluated(spec, root, entry, serving)
    given = _given(rules.trees, options.data)
    clock.lap("build")
    exporter = HermeticExporter(job.archive, rules)
    data: dict[str, str] = {}
    expected = None
    opaque: list[str] = []
    try:
        with exporter.deferring() as pickled:
            _save(exporter, f"the object that {spec} gives", ENTRY_RESOURCE, entry)
            clock.lap("export")
            if sample is not None:
                with calls.running(), files.running(), computed.noting():
                    expected = _run(spec, root, entry, kind, sample, opaque, serving)
                clock.lap("run")
            exporter.computed = computed.by
            rules.usage = Usage(
                ran=None if sample is None else frozenset(calls.ran),
                called=calls.called,
                used=used_by_loaded(rules.trees),
                pickled=frozenset(name.partition(".")[0] for name in pickled),
                needed=job.needed,
            )
        if sample is not None:
            _save_self_test(exporter, spec, sample, expected)
        _check_overrides(exporter, spec)
        check_names(exporter, spec)
        data |= dict.fromkeys(given, "--data")
        data |= _read(files, exporter) if job.planned_data is None else job.planned_data
        members = save_data(exporter, data)
        clock.lap("scan")
        exporter.close()
    except PackagingError:
        said, broken = explain_failure(exporter, spec), broken_modules(exporter)
        raise Unpackable(BuildRefusal(said, "", broken, proposals(exporter), data)) from None
    except PackError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the user's code may raise any exception)
        if found_no_room(error):
            exporter.give_up()
            raise _no_room(job.archive, error) from None
        raise _scan_error(exporter, spec, error, data) from None
    clock.lap("export")
    # torch ignores errors of the last writes when it closes the file.
    if not zipfile.is_zipfile(job.archive):
        raise _no_room(job.archive)
    try:
        files_digests = digests(job.archive)
        clock.lap("digest")
        manifest = append_manifest(
            job.archive,
            kind,
            exporter.verdicts,
            files_digests,
            imported_by=importers(exporter),
            data=members,
            inputs=None if sample is None else sample.describe(),
            self_test=None if sample is None else _self_test(options),
            serving=serving,
        )
    except OSError as error:
        raise _no_room(job.archive, error) from None
    except StructureError as error:
        if error.rule != "too-many-members":
            raise
        raise PackError(
            f"{spec}: its archive would hold more than {MOST_MEMBERS:,} files, modules and weights, and no "
            "reader takes it\n  What to do: pack many data files into one, or leave them out of the archive "
            "and give them to `interpool archive --extra-files`"
        ) from None
    clock.lap("scan")
    planned = job.planned_data is not None
    distributed = sys.modules.get("torch.distributed")
    dropped = dropped_imports(exporter)
    hidden = {name: line for name, line in sorted(files.hidden.items()) if name not in data}
    proposed = proposals(exporter)
    return Built(
        kind=kind,
        modules=manifest["modules"],
        externs=manifest["externs"],
        proposals=proposed,
        data=data,
        hidden=hidden,
        inputs=manifest["inputs"],
        serving=serving,
        warnings=[
            *in_training,
            *_uncompiled(exporter, spec),
            *dropped.at_import,
            *_outside(files),
            *_left_out(hidden),
            *_without_code(exporter),
            *_hardly_tested(spec, opaque),
            *_unused_globs(rules, exporter.verdicts, planned),
            *(_unplanned(proposed, job.decisions) if planned else ()),
        ],
        lazy=dropped.lazy,
        unseen=_unseen(exporter, spec, options.inputs or ""),
        own=_own(rules),
        sources={
            name: shown_path(exporter, name) for name in exporter.names("intern") if exporter.is_own(name)
        },
        bases=rules.trees.bases(),
        process_group=distributed is not None and distributed.is_available() and distributed.is_initialized(),
        seconds=clock.seconds,
    )


def _read(files: OpenedFiles, exporter: HermeticExporter) -> dict[str, str]:
    """Return the files that were read, except sources of modules with a verdict."""
    modules = {
        f"{name.replace('.', '/')}{end}" for name in exporter.verdicts for end in (".py", "/__init__.py")
    }
    return {name: line for name, line in files.inside.items() if name not in modules}


def _given(trees: WorkingTrees, globs: Iterable[str]) -> list[str]:
    """Return the files of --data, below the root or else in a working tree, by their names in the archive."""
    elsewhere = sorted({Path(base) for base in trees.bases().values()} - {trees.root})
    return [name for pattern in globs for name in _named(trees, pattern, elsewhere)]


def _named(trees: WorkingTrees, pattern: str, elsewhere: list[Path]) -> list[str]:
    try:
        base, names = trees.root, find_data(trees.root, [pattern])
    except PackError:
        for base in elsewhere:
            with contextlib.suppress(PackError):
                names = find_data(base, [pattern])
                break
        else:
            raise
    return [trees.member(base / name) + ("/" if name.endswith("/") else "") for name in names]


class _Clock:
    """Sums wall time by step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, what: str) -> None:
        now = time.monotonic()
        self.seconds[what] = self.seconds.get(what, 0.0) + now - self._last
        self._last = now


def _evaluated(spec: str, root: Path, entry: Any, serving: Serving) -> list[str]:
    """Switch a module to evaluation mode, in which it is served; returns a warning if answers change."""
    refuse_torchs_own(entry, spec)
    if not isinstance(entry, torch.nn.Module):
        return _held_in_training(spec, entry)
    layers = shown(training_layers(entry))
    if serving["train_mode"]:
        return [] if layers else [f"{spec} is to stay in training mode, and no layer of it is in that mode"]
    try:
        entry.eval()
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the user's code may raise any exception)
        raise user_error(error, root, f"{spec} raised when it was put into evaluation mode") from None
    changed = (
        f"{spec} came in training mode, and is packed in evaluation mode, as it is served: in its own mode, "
        f"{layers} would answer otherwise. Call eval() where you build it, or keep the mode with --train-mode"
    )
    return [changed] if layers else []


def _held_in_training(spec: str, entry: Any) -> list[str]:
    """Warn of a callable's layers in training mode; a handler chooses the mode in initialize."""
    held = vars(entry) if hasattr(entry, "__dict__") and not hasattr(entry, "initialize") else {}
    found = [
        f"{name}.{layer}"
        for name, part in held.items()
        if isinstance(part, torch.nn.Module)
        for layer in training_layers(part)
    ]
    said = (
        f"{spec} holds layers in training mode, which is how they answer when it is served, too: "
        f"{shown(found)}. Call eval() where you build it, if that is not what you want"
    )
    return [said] if found else []


def _run(
    spec: str,
    root: Path,
    entry: Any,
    kind: EntryKind,
    sample: Sample,
    opaque: list[str],
    serving: Serving,
) -> Any:
    try:
        return answer(entry, kind, sample, opaque=opaque, serving=serving)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the user's code may raise any exception)
        refusal = user_error(error, root, f"{spec} raised on its example inputs")
        if kind == "module" and not serving["grad"] and wants_gradients(error):
            raise PackError(f"{refusal.message}\n{IN_INFERENCE_MODE}", refusal.user_traceback) from None
        raise refusal from None


def _save_self_test(exporter: HermeticExporter, spec: str, sample: Sample, expected: Any) -> None:
    content = {"args": sample.args, "kwargs": sample.kwargs, "expected": expected}
    _save(exporter, f"the self-test of {spec}", SELF_TEST_RESOURCE, content)


def _self_test(options: PackOptions) -> SelfTest:
    return {
        "package": ENTRY_PACKAGE,
        "resource": SELF_TEST_RESOURCE,
        "seed": SEED,
        "rtol": options.rtol,
        "atol": options.atol,
    }


def _without_code(exporter: HermeticExporter) -> list[str]:
    """Warn of an archive without code, which does not determine the server's behaviour."""
    if exporter.names("intern"):
        return []
    tops = sorted({name.partition(".")[0] for name in exporter.names("extern")} - sys.stdlib_module_names)
    return [f"the archive contains no code: the model runs the server's versions of {', '.join(tops)}"]


def _uncompiled(exporter: HermeticExporter, spec: str) -> list[str]:
    said = (
        f"{spec} contains a module compiled by torch.compile, which cannot be packed: the archive contains "
        "the original module, which gives the same answers. To serve it compiled, call torch.compile when "
        "the model is first called"
    )
    return [said] if exporter.has_compiled else []


def _hardly_tested(spec: str, opaque: Iterable[str]) -> list[str]:
    return [
        f"the answer of {spec} holds {words}, of which the self-test compares the class only. Let the model "
        "answer tensors, numbers, texts, and lists and dicts of them"
        for words in opaque
    ]


def _unused_globs(rules: Rules, met: Iterable[str], planned: bool) -> list[str]:
    return [
        f"{verdict.where} matches no module that the model needs: a misspelt name, or not needed any more"
        for verdict in rules.unused(met)
        if planned or verdict.origin is Origin.USER
    ]


def _unplanned(proposed: Iterable[Proposal], decisions: Iterable[Proposal]) -> list[str]:
    """Warn of packages that the plan does not mention, because the code is newer or a line was lost."""
    planned = {each.glob for each in decisions}
    return [
        f"{each.line or each.glob}\n  the plan says nothing of {each.glob}, so it is {each.action}: "
        f"{each.reason}. Add a line to the plan, or make a new one"
        for each in proposed
        if each.glob not in planned and each.origin is not Origin.USER
    ]


def _unseen(exporter: HermeticExporter, *specs: str) -> list[str]:
    """Return modules of the project that were imported here, but that no module in the archive imports."""
    asked = {spec.partition(":")[0] for spec in specs}
    return sorted(
        name
        for name in _imported(exporter.rules.trees)
        if name not in exporter.verdicts and name not in asked
    )


def _own(rules: Rules) -> list[str]:
    """Return the top-level names of the project's modules that were imported here."""
    tops = {name.partition(".")[0] for name in _imported(rules.trees)}
    return sorted(top for top in tops if not rules.is_on_every_server(top))


def _imported(trees: WorkingTrees) -> list[str]:
    """Return the project's modules that were imported here."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return [name for name, file in files.items() if isinstance(file, str) and trees.owns(Path(file))]


def _outside(files: OpenedFiles) -> list[str]:
    return [
        f"{line}\n  reads {path}, which lies outside of the project and is not in the archive: the line "
        "will fail where there is no such file"
        for path, line in sorted(files.outside.items())
    ]


def _left_out(hidden: Mapping[str, str]) -> list[str]:
    return [
        f"{line}\n  reads {name}, a hidden file, which is not in the archive: such files may hold passwords. "
        f"If this one belongs there, say so with --data '{glob.escape(name)}'"
        for name, line in hidden.items()
    ]


def _save(exporter: HermeticExporter, what: str, resource: str, value: object) -> None:
    try:
        exporter.save_pickle(ENTRY_PACKAGE, resource, value)
    except PackagingError:
        raise
    except (Exception, SystemExit) as error:
        if was_pickling(error) and not found_no_room(error):
            raise explain_unpicklable(error, what, exporter.rules.root) from None
        raise
    if "__main__" in exporter.dependency_graph.successors(f"<{ENTRY_PACKAGE}.{resource}>"):
        raise PackError(
            f"{what} holds a class or function of __main__, which is another program on a server\n"
            f"  What to do: {OUT_OF_THE_PROGRAM}"
        )


def _no_room(archive: Path, error: BaseException | None = None) -> PackError:
    """Return the error for an archive that cannot be written, because of this error.

    Its temporary directory is beside the target.
    """
    place = archive.parent.parent
    if isinstance(error, OSError):
        said = error.strerror
    else:  # torch has only words of C++ for it
        said = "the disk is full, or a quota or a limit of a file's size is reached (`ulimit -f`)"
    free = f"{shutil.disk_usage(place).free / 1e6:,.1f} MB are free there"
    is_plans = archive.parent.name.startswith(f".{PLANNING}.")
    other = "set TMPDIR to a larger place" if is_plans else "name another place by -o"
    return PackError(
        f"the archive cannot be written to {place}: {said}; {free}\n  What to do: make room there, or {other}"
    )


def _scan_error(
    exporter: HermeticExporter, spec: str, error: BaseException, data: dict[str, str]
) -> Unpackable:
    """Return the error for a failed import: torch.package imports the modules that it scans."""
    scanned = _last_local(error, "_get_dependencies")
    imported = _last_local(error, "_import_module") or scanned
    line = own_line(exporter, scanned, imported) or cause_line(exporter, spec, scanned)
    fault = Fault(f"importing it failed ({type(error).__name__})", str(error))
    said = (
        f"{line}\n  packing follows every import, also in functions, and importing {imported} "
        f"failed: {type(error).__name__}: {error}\n"
        "  What to do: if it is a script, put what it does under if __name__ == '__main__'; if "
        "nothing needs it, remove the import"
    )
    broken = {name: fault for name in (imported, scanned) if may_change(exporter, name)}
    return Unpackable(BuildRefusal(said, readable_traceback(error), broken, proposals(exporter), data))


def _last_local(error: BaseException, function: str) -> str:
    """Return ``module_name`` in the innermost frame of one of the exporter's functions."""
    found = [
        frame.f_locals.get("module_name", "")
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_name == function
    ]
    return str(found[-1]) if found else ""


def _check_overrides(exporter: HermeticExporter, spec: str) -> None:
    """Refuse mocks of modules that torch.package always takes from the server."""
    rules = Rules(exporter.rules.root)
    for name in exporter.names("mock"):
        standard = rules.verdict(name).origin is Origin.STANDARD_LIBRARY
        if standard or name.partition(".")[0] == "torch":
            raise PackError(
                f"{cause_line(exporter, spec, name)}\n  {exporter.verdicts[name].reason} names "
                f"{name}, which torch.package always takes from the server\n"
                "  What to do: remove the import or the option"
            )


def build(job: BuildJob) -> Iterator[BuildResult]:
    """Run the job; a refusal is a result, too."""
    sys.path.insert(0, str(job.options.project))
    sys.argv = [job.spec]
    use_up_storage_warning()
    allow_torchscript()
    try:
        yield BuildResult(built=export(job))
    except Unpackable as error:
        yield BuildResult(refusal=error.refusal)
    except PackError as error:
        yield BuildResult(refusal=BuildRefusal(error.message, error.user_traceback, {}, [], {}))


if __name__ == "__main__":
    serve(BUILDING, build)
