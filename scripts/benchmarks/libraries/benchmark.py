"""Which libraries compute in private interpreters? Each is tried by one small real computation.

Two interpreters of a pool and the host program call it at once, again and again. Their answers are
compared with an ordinary Python's, as `interpool doctor --run` does. Each in processes of its own, as
some crash. If enough of them could be tried, it writes the table in docs/extensions.md and
docs/benchmarks/libraries.json.

The libraries are installed in an environment of their own, which sees this one's packages. One that
cannot be installed has a row that says so. Takes some 2.5 GB of disk.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import sysconfig
import time
import venv
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from marked import markdown_table, put

from benchmarks.libraries import network, numeric, storage, text  # noqa: F401 - register their computations
from benchmarks.libraries.registry import LIBRARIES, Library
from benchmarks.shared import report
from benchmarks.shared.checkout import ROOT, SCRIPTS, program
from interpool.native.diagnostics.run_trial import Status, Verdict, try_call

PAGE = ROOT / "docs/extensions.md"
RAW = ROOT / "docs/benchmarks/libraries.json"
LEAST = 40  # libraries that are tried
# Says something of the library: no pool that did not start, nor what fails in an ordinary Python.
TRIED = (Status.COMPUTES, Status.HOST, Status.ONE, Status.NEVER)


# ---- the environment ------------------------------------------------------------------------


def python_of(environment: Path) -> str:
    """The Python of an environment with the libraries; made, and what is missing installed, where need be."""
    python = environment / "bin/python"
    if not python.exists():
        venv.create(environment, with_pip=True)
        purelib = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
        (purelib / "interpool-libraries.pth").write_text(
            sysconfig.get_path("purelib") + "\n", encoding="utf-8"
        )
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, check=True)
    there = {bare(each["name"]) for each in json.loads(listed.stdout)}
    for library in LIBRARIES:
        if bare(library.distribution) not in there:
            print(f"  installing {library.distribution}", flush=True)
            command = [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *library.install]
            subprocess.run(command, check=False)  # what cannot be had, its row says
    return str(python)


def go_on_with(python: str) -> NoReturn:
    """Run this again with another Python, in this process."""
    _, *others = program("libraries.benchmark", *sys.argv[1:])
    os.execv(python, [python, *others])  # by its name Python finds its environment


def bare(name: str) -> str:
    """A distribution's name without extras, as pip compares it."""
    return name.partition("[")[0].lower().replace("_", "-").replace(".", "-")


# ---- in it ----------------------------------------------------------------------------------


def tried(library: Library) -> tuple[str, Verdict]:
    """Its version, and what became of it."""
    try:
        version = importlib.metadata.version(bare(library.distribution))
    except importlib.metadata.PackageNotFoundError:
        return "", Verdict(library.call, Status.MISSING, "cannot be had here")
    return version, try_call(library.call)


def row_of(library: Library, version: str, verdict: Verdict) -> list[str]:
    name = f"{bare(library.distribution)} {version}".strip()
    shown = {
        Status.COMPUTES: "yes",
        Status.HOST: f"in interpreters, not beside a host program that uses it: {verdict.failure}",
        Status.ONE: f"**in one interpreter only**: {verdict.failure}",
        Status.NEVER: f"**no**: {verdict.failure}",
    }
    return [name, library.what, shown.get(verdict.status, f"not tried: {verdict.failure}")]


def publish(found: list[tuple[Library, str, Verdict]], rows: list[list[str]]) -> None:
    """Write the table on its page, with what it was made with, and the raw numbers."""
    date, python = time.strftime("%Y-%m-%d", time.gmtime()), platform.python_version()
    made_with = f"Python {python}, torch {importlib.metadata.version('torch')}"
    made = f"Made by `scripts/bench libraries` on {date} with {made_with}, {os.cpu_count()} shared cores."
    table = markdown_table("library | what it did | computes", rows)
    put(PAGE, "libraries", f"{table}\n\n{made}", "scripts/bench libraries")
    libraries = [
        {"distribution": library.distribution, "version": version, **asdict(verdict)}
        for library, version, verdict in found
    ]
    kept = json.dumps({"date": date, "python": python, "libraries": libraries}, indent=1, ensure_ascii=False)
    RAW.write_text(kept + "\n", encoding="utf-8")


def main() -> None:
    parser = report.parser("libraries", __doc__)
    parser.add_argument(
        "--environment", type=Path, default=ROOT / "build/libraries", help="where they are installed"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="these distributions; writes no page"
    )
    options = parser.parse_args()
    environment = options.environment.resolve()
    if Path(sys.prefix).resolve() != environment:
        go_on_with(python_of(environment))
    os.environ["PYTHONPATH"] = str(SCRIPTS)
    found = []
    for library in sorted(LIBRARIES, key=lambda each: each.distribution.lower()):
        if options.only and bare(library.distribution) not in options.only:
            continue
        version, verdict = tried(library)
        found.append((library, version, verdict))
        print(f"  {library.distribution:<24} {version:<12} {verdict.status} {verdict.failure}", flush=True)
    rows = [row_of(*each) for each in found]
    calls = [float(verdict.calls) for _, _, verdict in found if verdict.status in TRIED]
    least = min(LEAST, len(options.only) or LEAST)
    bar = report.Bar(f"libraries that were tried, of {least}", len(calls) / least, 1.0)
    if not bar.met:
        print("  too few were tried: the table stays as it was")
    elif not options.only:
        publish(found, rows)
    report.finish(
        "libraries",
        {"calls of one library": calls} if calls else {},
        "by two interpreters and the host",
        [bar],
        rows=rows,
    )


if __name__ == "__main__":
    main()
