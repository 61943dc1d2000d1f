"""Runs tests, demo and the scaling benchmark with each Python and torch that interpool is to work with.

It also measures the memory of a further interpreter with each.

``scripts/test --matrix`` runs every cell of ``[tool.interpool.matrix]`` in ``pyproject.toml``, and
``scripts/test --matrix=3.12+2.15.0`` that one; several are divided by commas. Each cell is a copy of this
checkout with a set-up of its own under ``build/matrix``. What came out is kept, dated, in
``docs/matrix.json``, and ``docs/versions.md`` shows it as a table.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from marked import markdown_table, put

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "matrix.json"
PAGE = ROOT / "docs" / "versions.md"
SCALING = "scaling"
CANNOT_TELL = 3  # exit status of scripts/bench
HEAD = "CPython | torch | tests | demo | scaling | a further interpreter | on | missing"


class Cell(NamedTuple):
    """A minor version of CPython, and a version of torch."""

    python: str
    torch: str

    def __str__(self) -> str:
        return f"{self.python}+{self.torch}"


class NotRun(Exception):
    """What this cell lacks, in a line."""


def cells() -> list[Cell]:
    """All that there are, as ``pyproject.toml`` lists them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        matrix = tomllib.load(file)["tool"]["interpool"]["matrix"]
    return [Cell(python, torch) for python in matrix["python"] for torch in matrix["torch"]]


def python_of(version: str) -> Path:
    """A Python of that minor version on this machine; raises NotRun."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    candidates = [*sorted(pyenv.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")]
    for candidate in filter(None, candidates):
        asked = [str(candidate), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        if said.stdout.strip() == version:
            return Path(candidate)
    raise NotRun(f"no Python {version} on this machine")


def copy_checkout(to: Path) -> None:
    """This checkout's files, those that git ignores left out; what an earlier run has built there stays."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    wanted = {name for name in names if name and os.path.lexists(ROOT / name)}
    for old in to.rglob("*"):
        inside = old.relative_to(to)
        if (
            inside.parts[0] not in (".git", ".venv", "build", "results")
            and (old.is_symlink() or not old.is_dir())
            and str(inside) not in wanted
        ):
            old.unlink()
    for name in wanted:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        if (to / name).is_symlink():
            (to / name).unlink()  # a file is copied into the folder that a link leads to
        if _differs(ROOT / name, to / name):
            # Dated now, not when it was written: what was built of the one before may be younger than that.
            shutil.copy(ROOT / name, to / name, follow_symlinks=False)
    # Tests ask git which files there are.
    subprocess.run(["git", "init", "--quiet"], cwd=to, check=True)
    subprocess.run(["git", "add", "--all"], cwd=to, check=True)


def _differs(one: Path, other: Path) -> bool:
    return one.is_symlink() or not other.is_file() or not filecmp.cmp(one, other, shallow=False)


def run(cell: Cell, directory: Path) -> dict[str, Any]:
    """Everything with that cell; its row. Raises NotRun if it cannot be set up."""
    environment = {
        **os.environ,
        "INTERPOOL_PYTHON": str(python_of(cell.python)),
        "INTERPOOL_TORCH": cell.torch,
        "INTERPOOL_UNTESTED": "1",
    }
    environment.pop("VIRTUAL_ENV", None)

    def step(name: str, *command: str) -> int:
        """Run it in the copy, with a log of its name; its exit status."""
        with (directory / f"build/{name}.log").open("wb") as log:
            status = subprocess.run(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            ).returncode
        print(f"[matrix] {cell} {name}: {f'status {status}' if status else 'ok'}", flush=True)
        return status

    copy_checkout(directory)
    (directory / "build").mkdir(exist_ok=True)
    if step("setup", "scripts/setup", "--tests"):
        raise NotRun(f"scripts/setup fails: {_last_line(directory / 'build/setup.log')}")
    asked = "import platform, torch; print(platform.python_version(), torch.__version__)"
    command = [str(directory / ".venv/bin/python"), "-c", asked]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    report = directory / "build/tests.xml"
    report.unlink(missing_ok=True)
    step("tests", "scripts/test", f"--junitxml={report}")
    row: dict[str, Any] = {"python": found[0], "torch": found[1], **_counted(report)}
    row["demo"] = not step("demo", "scripts/demo")
    status = step(SCALING, "scripts/bench", "scaling")
    row[SCALING] = None if status == CANNOT_TELL else not status
    row["interpreter_mb"] = interpreter_mb(directory / ".venv/bin/python", directory)
    return row


def interpreter_mb(python: Path, checkout: Path) -> float:
    """What a further interpreter with torch takes there: MB (10⁶ bytes), PSS, as ``scripts/bench memory``."""
    command = [str(python), "scripts/benchmarks", "memory.process", "4"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(2):  # the first run compiles what it imports
        said = subprocess.run(
            command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    return round(float(json.loads(said.splitlines()[-1])["bare: pss, MB"]), 1)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1] if lines else "nothing said"


def _counted(report: Path) -> dict[str, Any]:
    """How many tests passed, and which did not."""
    if not report.is_file():
        return {"passed": 0, "skipped": 0, "failed": ["scripts/test ended before a test was run"]}
    cases = list(ET.parse(report).iter("testcase"))
    failed = [
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {"passed": len(cases) - len(failed) - skipped, "skipped": skipped, "failed": sorted(failed)}


def table(kept: dict[str, dict[str, Any]]) -> str:
    """The rows as Markdown."""
    return markdown_table(HEAD, [list(_columns(cell, kept.get(str(cell)))) for cell in cells()])


def shown(kept: dict[str, dict[str, Any]]) -> tuple[str, str, str]:
    """The table as the page has it: name, text, and the command that writes it."""
    return "matrix", table(kept), "scripts/test --matrix"


def _columns(cell: Cell, row: dict[str, Any] | None) -> Iterable[str]:
    if row is None:
        return cell.python, cell.torch, *[""] * 5, "not run yet"
    if "missing" in row:
        return cell.python, cell.torch, *[""] * 4, row["on"], row["missing"]
    failed = row["failed"]
    tests = f"{row['passed']:,} passed" + (f", {len(failed)} failed" if failed else "")
    marks = (
        {True: "✓", False: "✗", None: "the machine could not tell"}[row[name]] for name in ("demo", SCALING)
    )
    missing = [f"`{each}`" for each in failed[:3]]
    if row[SCALING] is False:
        missing.append("a bar of the benchmark")
    memory = f"{row['interpreter_mb']:.0f} MB" if "interpreter_mb" in row else ""
    return row["python"], row["torch"], tests, *marks, memory, row["on"], ", ".join(missing)


def load() -> dict[str, dict[str, Any]]:
    """What is kept, by cell."""
    kept: dict[str, dict[str, Any]] = json.loads(KEPT.read_text())
    return kept


def main(wanted: list[str]) -> int:
    """Runs the cells that are named, or all; returns the exit status."""
    known = {str(cell): cell for cell in cells()}
    if unknown := [name for name in wanted if name not in known]:
        print(f"[matrix] no such cell: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    complete = True
    for name in wanted or known:
        directory = ROOT / "build" / "matrix" / name
        try:
            row = run(known[name], directory)
        except NotRun as reason:
            print(f"[matrix] {name}: {reason}")
            row = {"missing": str(reason)}
        complete &= not row.get("failed") and bool(row.get("demo")) and bool(row.get(SCALING))
        kept = {**load(), name: {"on": time.strftime("%Y-%m-%d", time.gmtime()), **row}}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        put(PAGE, *shown(kept))
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main([name for name in "".join(sys.argv[1:]).removeprefix("=").split(",") if name]))
