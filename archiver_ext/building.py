"""The process that builds the user's object and writes the archive.

It is a process of its own so that the user's code runs with its own ``sys.path`` and
cannot disturb the caller, and with a fixed hash seed: sets of strings are pickled in
hash order, and equal models must give equal bytes.

Run as ``python -P -m interpool.archiver_ext.building WORKDIR`` by run_step.
"""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from torch.package.package_exporter import PackagingError

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.explain import (
    cause_line,
    dropped_imports,
    explain_failure,
    own_line,
    shown_path,
)
from interpool.archiver_ext.exporter import HermeticExporter
from interpool.archiver_ext.graph import importers
from interpool.archiver_ext.jobs import ARCHIVE_NAME, read_job, write_result
from interpool.archiver_ext.manifest import append_manifest
from interpool.archiver_ext.pickling import explain_unpicklable, was_pickling
from interpool.archiver_ext.rules import STANDARD_LIBRARY, Globs, Rules
from interpool.archiver_ext.spec import build_entry
from interpool.archiver_ext.tracebacks import readable_traceback
from interpool.native.archive_format import ENTRY_PACKAGE, ENTRY_RESOURCE


def export(spec: str, rules: Rules, archive: Path) -> dict[str, Any]:
    """Build the SPEC's object and write it, with its manifest, to ``archive``.

    Returns:
        JSON-able facts for the report: kind, modules, externs, warnings, sources
        (the project's own files by module) and seconds.

    Raises:
        PackError: see build_entry; or the object or a module cannot be packed.
    """
    started = time.monotonic()
    entry, kind = build_entry(spec, rules.root)
    built = time.monotonic()
    exporter = HermeticExporter(archive, rules)
    try:
        _save(exporter, spec, entry)
        _check_overrides(exporter, spec)
        exporter.close()
    except PackagingError:
        raise PackError(explain_failure(exporter, spec)) from None
    exported = time.monotonic()
    manifest = append_manifest(archive, kind, exporter.verdicts, importers(exporter))
    return {
        "kind": kind,
        "modules": manifest["modules"],
        "externs": manifest["externs"],
        "warnings": dropped_imports(exporter),
        "sources": {
            name: shown_path(exporter, name) for name in exporter.names("intern") if exporter.is_own(name)
        },
        "seconds": {
            "build": built - started,
            "export": exported - built,
            "digest": time.monotonic() - exported,
        },
    }


def _save(exporter: HermeticExporter, spec: str, entry: object) -> None:
    try:
        exporter.save_pickle(ENTRY_PACKAGE, ENTRY_RESOURCE, entry)
    except PackagingError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- it is the user's code
        if was_pickling(error):
            raise explain_unpicklable(error, spec, exporter.rules.root) from None
        raise _scan_error(exporter, spec, error) from None


def _scan_error(exporter: HermeticExporter, spec: str, error: BaseException) -> PackError:
    """torch.package imports what it scans, with all that happens then."""
    scanned = _last_local(error, "_get_dependencies")
    imported = _last_local(error, "_import_module") or scanned
    line = own_line(exporter, scanned, imported) or cause_line(exporter, spec, scanned)
    return PackError(
        f"{line}\n  packing follows every import, also in functions, and importing {imported} "
        f"failed: {type(error).__name__}: {error}\n"
        "  What to do: if it is a script, put what it does under if __name__ == '__main__'; if "
        "nothing needs it, remove the import",
        readable_traceback(error),
    )


def _last_local(error: BaseException, function: str) -> str:
    """``module_name`` in the innermost frame of one of the exporter's functions."""
    found = [
        frame.f_locals.get("module_name", "")
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_name == function
    ]
    return str(found[-1]) if found else ""


def _check_overrides(exporter: HermeticExporter, spec: str) -> None:
    """torch.package takes these from the server whatever it is told."""
    for name in exporter.names("mock"):
        plain = Rules(exporter.rules.root).verdict(name)
        if plain.reason == STANDARD_LIBRARY or name.partition(".")[0] == "torch":
            raise PackError(
                f"{cause_line(exporter, spec, name)}\n  {exporter.verdicts[name].reason} names "
                f"{name}, which torch.package always takes from the server\n"
                "  What to do: remove the import or the option"
            )


def main(workdir: Path) -> None:
    """Do the job in ``workdir``; a refusal is a result like any other."""
    job = read_job("building", workdir)
    root = Path(job["root"])
    sys.path.insert(0, str(root))
    sys.argv = [job["spec"]]
    # One line per storage, about torch.package's own use of it.
    warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
    rules = Rules(root, Globs(**{key: tuple(globs) for key, globs in job["globs"].items()}))
    try:
        result = export(job["spec"], rules, workdir / ARCHIVE_NAME)
    except PackError as error:
        result = {"error": error.message, "traceback": error.user_traceback}
    write_result("building", workdir, result)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
