"""Finds broken interpreters: models fail to load in them that load in others, so the models are not at fault.

A model may change its interpreter so that no other model can be loaded there any more. The check for traces
(``native/inside/rebinding.py``) does not find every such change. As such an interpreter has few models, it is
the first that the pool tries for the next model.
"""

from __future__ import annotations

import os

FAILURES = 2  # of different models, with no load between them that succeeds


class FailingInterpreters:
    """The outcomes of loads, by model and interpreter. For the host's control thread."""

    def __init__(self) -> None:
        self._loaded: dict[str, set[int]] = {}  # where each model has been loaded
        self._failed: dict[int, set[str]] = {}  # by interpreter, since something was last loaded there

    def note(self, model_dir: str, interpreter: int, *, loaded: bool) -> list[int]:
        """Note the outcome of a load.

        Args:
            model_dir: the model's directory.
            interpreter: the number of the interpreter.
            loaded: whether the load succeeded.

        Returns:
            The interpreters that are now found to be broken. Each is returned once.
        """
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
        """Forget the models that were unregistered, whose directories are gone."""
        known = set(self._loaded).union(*self._failed.values())
        for model_dir in (each for each in known if not os.path.isdir(each)):
            self._loaded.pop(model_dir, None)
            for models in self._failed.values():
                models.discard(model_dir)

    def _fail_there_only(self, interpreter: int, models: set[str]) -> bool:
        return sum(bool(self._loaded.get(model, set()) - {interpreter}) for model in models) >= FAILURES
