"""Limits of age and size for unused cache entries."""

from __future__ import annotations

import math
import os
from typing import NamedTuple

from interpool.native.errors import ProvisioningError

DAYS = "INTERPOOL_CACHE_DAYS"
GIGABYTES = "INTERPOOL_CACHE_GB"
DAY_S = 86400.0


class Limits(NamedTuple):
    """Limits for cache entries that no process uses.

    Attributes:
        unused_s: entries unused for this many seconds are removed; infinity for no limit.
        size: bytes on disk; above it, the entries unused longest are removed. Infinity for no limit.
    """

    unused_s: float = math.inf
    size: float = math.inf


def limits() -> Limits:
    """Return the limits of the environment variables; 0 sets no limit.

    Raises:
        ProvisioningError: a variable is not a valid number.
    """
    days = _number(DAYS, "14", "a number of days")
    size = _number(GIGABYTES, "10", "a number of gigabytes (10^9 bytes)")
    return Limits(days * DAY_S or math.inf, size * 1e9 or math.inf)


def _number(name: str, default: str, what: str) -> float:
    given = os.environ.get(name) or default
    try:
        number = float(given)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ProvisioningError(f"{name} must be {what}, not {given!r}", "0 sets no limit")
    return number
