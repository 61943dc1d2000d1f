"""What every benchmark prints, keeps and exits with."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.shared.checkout import ROOT
from benchmarks.shared.made_on import made_on

PASSED, FAILED, INCONCLUSIVE = 0, 1, 3
RESULTS = Path(os.environ.get("INTERPOOL_RESULTS") or ROOT / "results")


@dataclass(frozen=True)
class Bar:
    """A ratio and the least it must be."""

    name: str
    ratio: float
    least: float

    @property
    def met(self) -> bool:
        return self.ratio >= self.least


def parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The options of a benchmark, for which ``--help`` shows its module's documentation as it is."""
    return argparse.ArgumentParser(
        description=doc, prog=f"scripts/bench {name}", formatter_class=argparse.RawDescriptionHelpFormatter
    )


def median_of(values: list[float]) -> str:
    """``median (least to most)``."""
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def ratio(one: list[float], other: list[float]) -> float:
    """The median over the rounds of one figure over another of the same round."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def finish(
    name: str, measured: dict[str, list[float]], unit: str, bars: list[Bar], doubt: str = "", **extra: Any
) -> NoReturn:
    """Print the outcome, keep the raw numbers as JSON under ``results/`` (or $INTERPOOL_RESULTS), and exit.

    Args:
        measured: every run's figure, per configuration.
        doubt: why this machine proves nothing; turns missed bars into "inconclusive".
    """
    for configuration, values in measured.items():
        print(f"  {configuration:<28} {median_of(values)} {unit}")
    for bar in bars:
        print(f"  {'met ' if bar.met else 'MISS'}  {bar.name}: {bar.ratio:.3f} (at least {bar.least})")
    missed = [bar for bar in bars if not bar.met]
    outcome = "passed" if not missed else "inconclusive" if doubt else "failed"
    print(f"{name}: {outcome}{f' ({doubt})' if doubt else ''}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(
        json.dumps(
            {
                "benchmark": name,
                "outcome": outcome,
                "doubt": doubt,
                "unit": unit,
                "measured": measured,
                "bars": [{"name": b.name, "ratio": b.ratio, "least": b.least, "met": b.met} for b in bars],
                "cores": os.cpu_count(),
                **made_on(),
                **extra,
            },
            indent=1,
        )
        + "\n"
    )
    print(f"raw numbers: {path}")
    sys.exit(PASSED if not missed else INCONCLUSIVE if doubt else FAILED)
