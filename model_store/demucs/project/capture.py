"""Models that know what they were made with, so that they can be made again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def capture_init(init: Callable[..., None]) -> Callable[..., None]:
    """Decorates an ``__init__``: keeps its arguments as the attribute ``made_with``."""

    @functools.wraps(init)
    def captured(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.made_with = (args, kwargs)

    return captured
