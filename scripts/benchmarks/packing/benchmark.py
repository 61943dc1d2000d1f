"""What packing costs: a model of a gigabyte, beside torch.save and one SHA-256 pass over its file.

What packing does to find out and prove something is reported apart: building the model, running
it on its example inputs, loading the archive in a fresh process. `interpool why` is asked on the
BERT recipe's archive, as a whole process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.shared import report
from benchmarks.shared.checkout import ROOT, SCRIPTS, program
from interpool.archiver_ext import pack
from interpool.archiver_ext.packing.plan import Plan

BERT = ROOT / "model_store" / "bert"
SPEC = "benchmarks.packing.weights:build"


def save_once(file: Path) -> dict[str, float]:
    """Seconds of torch.save and of hashing, in a process of its own, as packing's are."""
    command = program("packing.benchmark", "--save", str(file))
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def save_and_hash(file: Path) -> dict[str, float]:
    """Seconds of torch.save, and of one SHA-256 pass over what it wrote."""
    import torch

    from benchmarks.packing import weights

    model = weights.build()
    started = time.perf_counter()
    torch.save(model, file)
    saved = time.perf_counter()
    with file.open("rb") as stream:
        hashlib.file_digest(stream, "sha256")
    hashed = time.perf_counter()
    file.unlink()
    return {"torch.save": saved - started, "one hash pass": hashed - saved}


def pack_once(file: Path) -> dict[str, float]:
    """Seconds of packing's steps."""
    seconds = pack(SPEC, file, root=SCRIPTS, plan=Plan(SPEC)).seconds
    file.unlink()
    return {f"pack: {step}": spent for step, spent in seconds.items()}


def ask_why(archive: Path) -> float:
    """Seconds of ``interpool why``, from start to end of its process."""
    command = [str(Path(sys.executable).parent / "interpool"), "why", str(archive), "transformers"]
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="scripts/bench packing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--directory", type=Path, help="where to write; default: the temporary directory")
    parser.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.save is not None:
        print(json.dumps(save_and_hash(options.save)))
        return
    os.environ["INTERPOOL_WEIGHTS_MB"] = str(options.megabytes)
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        for round_number in range(options.rounds):
            turns = [
                lambda: save_once(Path(folder) / "saved.pt"),
                lambda: pack_once(Path(folder) / "packed.ptpkg"),
            ]
            for turn in turns[:: 1 if round_number % 2 else -1]:
                for what, spent in turn().items():
                    measured.setdefault(what, []).append(spent)
        archive = Path(folder) / "bert.ptpkg"
        pack("project.factory:build", archive, root=BERT, inputs=None)
        measured["why transformers, in BERT"] = [ask_why(archive) for _ in range(options.rounds)]
    plain = _sums(measured, "torch.save", "one hash pass")
    packing = _sums(measured, "pack: export", "pack: digest")
    report.finish(
        "packing",
        {"torch.save and hash": plain, "pack: export and digest": packing, **measured},
        "s",
        [
            report.Bar(
                "torch.save and one hash pass, over export and digest",
                report.ratio(plain, packing),
                1.0,
            ),
            report.Bar("a second, over why", 1.0 / max(measured["why transformers, in BERT"]), 1.0),
        ],
        megabytes=options.megabytes,
    )


def _sums(measured: dict[str, list[float]], *names: str) -> list[float]:
    return [sum(values) for values in zip(*(measured[name] for name in names), strict=True)]


if __name__ == "__main__":
    main()
