"""Finds interpreters in which models fail that load elsewhere: they are broken, and not the models.

A model may leave its interpreter so that others cannot be loaded there any more, in a way that is not looked
for (``native/inside/rebinding.py``). As it has few models, it is the first to be tried for the next.
"""

from __future__ import annotations

import os

FAILURES = 2  # of different models, with no load that succeeds between them


class FailingInterpreters:
    """What became of loads, by model and interpreter. For the host's control thread."""

    def __init__(self) -> None:
        self._loaded: dict[str, set[int]] = {}  # where each model has been loaded
        self._failed: dict[int, set[str]] = {}  # by interpreter, since something was last loaded there

    def note(self, model_dir: str, interpreter: int, *, loaded: bool) -> list[int]:
        """Note a load; gives the interpreters that are found to be broken, each once."""
        if loaded:
            self._loaded.setdefault(model_dir, set()).add(interpreter)
            self._failed.pop(interpreter, None)
        else:
            self._failed.setdefault(interpreter, set()).add(model_dir)
        broken = [one for one, models in self._failed.items() if self._fail_there_only(one, models)]
        for one in broken:
            del self._failed[one]
        return broken

    def forget_gone(self) -> None:
        """Forget models whose directory is gone: they were unregistered."""
        known = set(self._loaded).union(*self._failed.values())
        for model_dir in (each for each in known if not os.path.isdir(each)):
            self._loaded.pop(model_dir, None)
            for models in self._failed.values():
                models.discard(model_dir)

    def _fail_there_only(self, interpreter: int, models: set[str]) -> bool:
        return sum(bool(self._loaded.get(model, set()) - {interpreter}) for model in models) >= FAILURES
