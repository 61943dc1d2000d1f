"""How long, and how much of it, the cache keeps what no process uses."""

from __future__ import annotations

import math
import os
from typing import NamedTuple

from interpool.native.errors import ProvisioningError

DAYS = "INTERPOOL_CACHE_DAYS"
GIGABYTES = "INTERPOOL_CACHE_GB"
DAY_S = 86400.0


class Limits(NamedTuple):
    """What is kept of that which no process uses.

    Attributes:
        unused_s: what was unused for so many seconds is removed; infinity: nothing is for its age.
        size: bytes on the disk; of more than that goes what was unused longest. Infinity: any size.
    """

    unused_s: float = math.inf
    size: float = math.inf


def limits() -> Limits:
    """Those of the environment's settings, in which 0 sets none.

    Raises:
        ProvisioningError: a setting is no such number.
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
