"""Does every model pack, and does it answer from its archive as it does from its source?

For each recipe in model_store, and for models of installed packages that nobody wrote
for interpool: plan, pack as planned, verify, wrap as a .mar; load by the archive and by
torch.load in turns; and compare, in two interpreters at once, with a stock Python
process that has the source. Writes the tables in docs/models.md.

The recipes are the fifteen kinds of model of the paper's Figure 4; what TorchScript and
torch.export make of each as it is stands beside what it took to pack it.

All recipes must pack, verify and answer alike; plan's first proposal must hold for
ten of them; five packages' models must pack and answer alike. Packages that are missing
(`pip install 'interpool[zoo]'`) have a row that says so. Times are shown, without a bar.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch reads it, here and in the processes started

from marked import put

from benchmarks.models.tables import (
    Row,
    code_lines,
    facts,
    recipes_table,
    request_words,
    suite_table,
    third_party_table,
)
from benchmarks.shared import report
from benchmarks.shared.checkout import ROOT, SUPPORT, program
from benchmarks.shared.model_list import RECIPES, THIRD_PARTY, Model
from interpool.archiver_ext import PackError, pack
from interpool.archiver_ext.mar.making import MarRequest, make_mar
from interpool.archiver_ext.packing.pack import PackReport, propose
from interpool.archiver_ext.packing.plan import read_plan, write_plan
from interpool.archiver_ext.verify.verification import verify_archive
from interpool.native.errors import ArchiveError

PAGE = ROOT / "docs/models.md"

HOLD, ALIKE = 10, 5  # of the recipes' plans that hold unchanged, and of the packages' models that pack


# ---- the steps, each by the command's own function ------------------------------------------


def packed(model: Model, folder: Path, row: Row) -> Path:
    """Plan, and pack by the plan's file; raises PackError."""
    planned = propose(model.spec, root=model.root)
    row.attempts, row.corrections = planned.attempts, planned.corrections
    write_plan(planned.plan, folder / "plan.toml")
    archive = folder / f"{model.name}.ptpkg"
    start = _cpu_seconds()
    plan = read_plan(folder / "plan.toml")
    done = pack(model.spec, archive, root=model.root, plan=plan)
    row.pack_seconds = _cpu_seconds() - start
    row.attempts = max(row.attempts, done.attempts)
    _note(row, done)
    return archive


def _cpu_seconds() -> float:
    """Of this process and of its children that have ended: others on the machine do not add to it."""
    return sum(os.times()[:4])


def _note(row: Row, done: PackReport) -> None:
    row.counts = dict(Counter(record["action"] for record in done.modules.values()))
    names = {each["distribution"] for each in done.externs} - {"torch", "numpy"}
    row.externs = sorted(names, key=str.lower)
    row.size = done.size
    found = done.request
    row.request = "" if found is None else request_words(found.batches, found.content_type, found.body)


def verified(archive: Path) -> bool:
    """Whether verify finds nothing wrong, the self-test included."""
    try:
        verify_archive(archive)
    except ArchiveError as error:
        print(f"  {error}", file=sys.stderr)
        return False
    return True


def wrapped(archive: Path, folder: Path) -> int:
    """Make the .mar that `interpool archive` makes; gives its size in bytes."""
    handler = ROOT / "handler/interpool_handler.py"
    return make_mar(MarRequest(package=archive, handler=str(handler), export_path=folder)).size


# ---- one model ------------------------------------------------------------------------------


def run(model: Model, folder: Path, rounds: int) -> Row:
    row = Row(
        model.name, model.what, lines=code_lines(model.factory), by_hand=model.by_hand, paper=model.paper
    )
    missing = _missing(model)
    if missing:
        row.failed = f"not tried: {missing}"
        return row
    for script in model.build:
        subprocess.run([sys.executable, model.root / script], check=True, stdout=subprocess.DEVNULL)
    stock = folder / "stock"
    stock.mkdir(parents=True)
    try:
        _stock_answer(model, stock)
    except subprocess.CalledProcessError:
        row.failed = "its source does not answer in an ordinary Python process"
        return row
    row.weights = (stock / "entry.pt").stat().st_size
    if model.paper:
        row.exported = _exported(model)
    try:
        archive = packed(model, folder, row)
    except PackError as error:
        row.failed = _first_words(error)
        return row
    row.verified = verified(archive)
    row.mar = wrapped(archive, folder)
    job = {"archive": str(archive), "stock": str(stock), "root": str(model.root)}
    if model.build:  # operators of its own: see there
        found = _packaged_answer(job)
        for way in ("archive", "torch"):
            found |= _packaged_answer(job, "--rounds", str(rounds), "--by", way)
    else:
        found = _packaged_answer(job, "--rounds", str(rounds))
    row.equal = "differences" in found and not any(found["differences"])
    for difference in found.get("differences", [[str(found)]]):
        print(*difference, sep="\n", file=sys.stderr)
    row.archive, row.torch = found.get("archive", []), found.get("torch", [])
    return row


def _missing(model: Model) -> str:
    """Why what the model needs cannot be imported, tried in a process of its own; "" if it can."""
    if not model.needs:
        return ""
    imports = "; ".join(f"import {name}" for name in model.needs)
    done = subprocess.run([sys.executable, "-P", "-c", imports], capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def _stock_answer(model: Model, folder: Path) -> None:
    command = [sys.executable, "-P", "-W", "ignore", str(SUPPORT / "stock_answer.py")]
    subprocess.run([*command, str(model.root), model.spec, str(folder)], check=True)


def _exported(model: Model) -> dict[str, Any]:
    command = program("shared.exported", str(model.root), model.spec, flags=("-W", "ignore"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return {"reasons": {"process": f"Ended: with status {done.returncode}"}}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _packaged_answer(job: dict[str, str], *options: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(SUPPORT / "packaged_answer.py"),
        *options,
        json.dumps([job]),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return {}
    (found,) = json.loads(done.stdout.splitlines()[-1])
    return dict(found)


def _first_words(error: PackError) -> str:
    """The message without its advice, in one line."""
    said = str(error).partition("\n  What to do")[0].partition("\n\n")[0]
    text = " ".join(said.split())
    return text if len(text) <= 240 else f"{text[:237]}..."


# ---- all of them ----------------------------------------------------------------------------


def run_all(models: list[Model], folder: Path, rounds: int) -> list[Row]:
    rows = []
    for model in models:
        row = run(model, folder / model.name, rounds)
        rows.append(row)
        outcome = row.failed or f"{row.attempts} attempts, verified {row.verified}, equal {row.equal}"
        print(f"  {model.name:<24} {outcome}", flush=True)
    return rows


def made_with() -> str:
    """A line on what the tables were made with."""
    import torch

    names = ["transformers", "torchvision", "timm"]
    found = [f"torch {torch.__version__}", f"Python {sys.version.split()[0]}"]
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"Made with {', '.join(found)}; `OMP_NUM_THREADS=1`, {os.cpu_count()} shared cores."


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="scripts/bench models",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=15, help="loads of each kind, in turns")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these models; writes no page")
    parser.add_argument("--recipes", action="store_true", help="no packages' models; their table stays")
    options = parser.parse_args()

    def chosen(models: tuple[Model, ...]) -> list[Model]:
        return [model for model in models if not options.only or model.name in options.only]

    with tempfile.TemporaryDirectory() as folder:
        recipes = run_all(chosen(RECIPES), Path(folder), options.rounds)
        others = [] if options.recipes else chosen(THIRD_PARTY)
        packages = run_all(others, Path(folder), options.rounds)
    tables = {"recipes": recipes_table(recipes), "suite": suite_table(recipes)}
    if not options.recipes:
        tables |= {"third-party": third_party_table(packages), "made-with": made_with()}
    print(*tables.values(), sep="\n\n")
    if not options.only:
        for name, table in tables.items():
            put(PAGE, name, table, "scripts/bench models")
    good = [row for row in recipes if not row.failed and row.verified and row.equal and row.mar]
    held = [row for row in recipes if row.held]
    alike = [row for row in packages if not row.failed and row.equal]
    bars = [
        report.Bar("recipes that pack, verify and answer alike", len(good) / max(1, len(recipes)), 1.0),
    ]
    if not options.only:
        bars.append(report.Bar(f"plans that hold unchanged, of {HOLD}", len(held) / HOLD, 1.0))
    if not (options.only or options.recipes):
        words = f"packages' models that pack and answer alike, of {ALIKE}"
        bars.append(report.Bar(words, len(alike) / ALIKE, 1.0))
    report.finish(
        "models",
        {row.name: row.load_ratios for row in [*recipes, *packages] if row.archive},
        "times torch.load",
        bars,
        rows=[facts(row) for row in [*recipes, *packages]],
    )


if __name__ == "__main__":
    main()
