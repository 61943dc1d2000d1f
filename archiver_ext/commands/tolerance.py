"""The option type for the tolerances of answers."""

from __future__ import annotations

from typing import Any, Final

import click

from interpool.native.archive.format import TOLERANCES_BELOW, is_tolerance


class _Tolerance(click.FloatRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert like FloatRange, but refuse NaN."""
        found: float = super().convert(value, param, ctx)
        if not is_tolerance(found):
            self.fail(f"{value} is not a number.", param, ctx)
        return found


TOLERANCE: Final = _Tolerance(0, TOLERANCES_BELOW, max_open=True)
"""The type of ``--rtol`` and ``--atol``."""
