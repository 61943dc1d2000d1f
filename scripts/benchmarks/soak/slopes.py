"""Whether something grows: a least-squares line through samples, and how far to trust it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Literal

Verdict = Literal["flat", "grows", "cannot tell"]
HOUR = 3600.0


@dataclass(frozen=True)
class Slope:
    """Per hour; the error is two standard errors to either side."""

    per_hour: float
    error: float


def slope_of(seconds: Sequence[float], values: Sequence[float]) -> Slope:
    """The line's slope. Raises ValueError for fewer than four samples.

    Samples that follow one another are alike (garbage that is not collected yet). So the error is that of
    fewer, independent samples. Their number follows from the residuals' correlation from one to the next.
    """
    if len(values) < 4:
        raise ValueError(f"{len(values)} samples are too few for a line")
    line = statistics.linear_regression(seconds, values)
    residuals = [y - line.intercept - line.slope * x for x, y in zip(seconds, values, strict=True)]
    squares = sum(each**2 for each in residuals)
    if squares < 1e-18 * max(1.0, max(map(abs, values)) ** 2):  # on the line, but for the arithmetic
        return Slope(line.slope * HOUR, 0.0)
    following = sum(a * b for a, b in pairwise(residuals)) / squares
    correlated = min(0.95, max(0.0, following))
    spread = sum((x - statistics.fmean(seconds)) ** 2 for x in seconds)
    error = sqrt(squares / (len(values) - 2) / spread * (1 + correlated) / (1 - correlated))
    return Slope(line.slope * HOUR, 2 * error * HOUR)


def verdict(slope: Slope, limit: float) -> Verdict:
    """Whether it grows by more than the limit in an hour.

    "flat": not even at the upper end of the error. "grows": even at its lower end. Else there were too few
    samples, or they spread too far.
    """
    if slope.per_hour + slope.error <= limit:
        return "flat"
    return "grows" if slope.per_hour - slope.error > limit else "cannot tell"
