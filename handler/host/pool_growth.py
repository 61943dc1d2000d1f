"""Gives the other models room while long calls hold every interpreter.

The pool cannot know how long a call will take, and it takes no lease back. So the calls of one model may come
to hold all interpreters of a pool of any size. They hold them until their limit or TorchServe's timeout.
The other models wait only until that is evident. Then the pool grows by one beyond its size, for models that
have no interpreter at all. It grows by another one if a long call holds that one, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interpool.handler.host.interpreter_pool import Pool
from interpool.handler.host.model_placement import SHORT
from interpool.handler.host.served_models import ServedModels
from interpool.handler.host.status import sharing

if TYPE_CHECKING:
    from interpool.native.pool.states import PoolState

HELD_S = 5.0
_RETIRED_STEP = 10  # the log says how many interpreters are gone, each time that so many more are

logger = logging.getLogger("interpool.host")


def holders(stats: PoolState) -> dict[str, float]:
    """The models whose long calls hold all interpreters, each with the seconds of its longest; else {}.

    A call is long if it has lasted for ``HELD_S``. The result is {} if any interpreter has no such call.
    """
    active = sharing(stats)
    found: dict[str, float] = {}
    for one in active:
        seconds = one["seconds"] or 0.0
        if one["state"] == "free" or seconds < HELD_S:
            return {}
        model = one["model"] or ""
        found[model] = max(found.get(model, 0.0), seconds)
    return found


def relieved_size(stats: PoolState, size: tuple[int, int], has_memory: Callable[[], bool]) -> tuple[int, int]:
    """The minimum and maximum size that the pool should have now.

    Args:
        stats: the state of the pool.
        size: the minimum and maximum size that it has if no model lacks an interpreter.
        has_memory: returns whether there is memory for one more interpreter; called only if one is needed.
    """
    smallest, largest = size
    active = sharing(stats)
    owners = {one["owner"] for one in stats["interpreters"]}
    starved = [
        name
        for name, model in stats["models"].items()
        if model["waiting"] and not model["running"] and name not in owners
    ]
    if starved and holders(stats) and has_memory():
        return smallest, max(largest, len(active) + 1)
    is_calm = not stats["waiting"] and any(one["state"] == "free" for one in active)
    return size if is_calm else (smallest, max(largest, stats["max_size"]))


def describe(stats: PoolState, names: dict[str, str]) -> str:
    """Why the pool does not serve all models now, for people; "" if it does.

    Args:
        stats: the state of the pool.
        names: the models' names, by directory.
    """
    if all(one["state"] in ("parked", "retired") for one in stats["interpreters"]):
        return f"no interpreter is left, and none starts: {stats['failure']}" if stats["failure"] else ""
    held = holders(stats)
    if not held or not stats["waiting"]:
        return ""
    each = ", ".join(f"{names.get(model, model)} for {s:.0f} s" for model, s in sorted(held.items()))
    return f"{stats['waiting']} calls wait: long calls or loads hold every interpreter: {each}"


@dataclass
class PoolGrowth:
    """Sets a pool's size again and again, and logs what is wrong. For the host's control thread."""

    pool: Pool
    models: ServedModels
    free_memory: Callable[[], float]  # the part of the memory that is left, 0 to 1
    trouble: str = ""  # why the pool did not serve all models at the last look, for people; "" if it did
    _retired: int = 0

    def look(self) -> None:
        """Give the pool the size that it should have now."""
        manager, size = self.pool.manager, self.pool.size
        if manager is None or size is None:
            return
        stats = manager.stats()
        before, self._retired = self._retired, self.pool.retired
        if self._retired // _RETIRED_STEP > before // _RETIRED_STEP:
            logger.warning(
                "%d interpreters are gone, and their memory until this process ends", self._retired
            )
        wanted = relieved_size(stats, size, lambda: self.free_memory() >= SHORT)
        if wanted[1] != stats["max_size"]:
            logger.warning("the pool has at most %d interpreters from now on", wanted[1])
            manager.resize(*wanted)
        had_trouble, self.trouble = self.trouble, describe(stats, self.models.names())
        if self.trouble and not had_trouble:
            logger.error("%s", self.trouble)
        elif had_trouble and not self.trouble:
            logger.info("the pool serves all models again")
