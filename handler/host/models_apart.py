"""Models that get processes of their own, whatever their settings say: they have done much harm to others."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from interpool.handler.host.ordinary_models import identity_of

logger = logging.getLogger("interpool.host")

_APART = "apart-"  # files in the runtime directory, with an archive's identity in their names


class ModelsApart:
    """Knows these models by their directories. Its methods are for the host's control thread.

    Args:
        runtime_dir: the host's runtime directory. The next host finds it if this one does not remove it.
    """

    def __init__(self, runtime_dir: Path) -> None:
        self._runtime_dir = runtime_dir
        self._here: set[str] = set()

    def add(self, model_dir: str) -> None:
        """Have the model's next workers served by a process of its own."""
        self._here.add(model_dir)

    def remember(self, model_dir: str) -> None:
        """Do as ``add`` does, also for the hosts after this one, which is about to leave."""
        self.add(model_dir)
        try:
            (self._runtime_dir / f"{_APART}{identity_of(model_dir)}").touch()
        except OSError as error:  # for example, it was unregistered meanwhile
            logger.warning("%s gets no process of its own from the next host: %s", model_dir, error)

    def __contains__(self, model_dir: str) -> bool:
        if model_dir not in self._here and any(self._runtime_dir.glob(f"{_APART}*")):
            try:
                if (self._runtime_dir / f"{_APART}{identity_of(model_dir)}").exists():
                    self.add(model_dir)
            except OSError:
                return False
        return model_dir in self._here

    @property
    def remembers(self) -> bool:
        """Whether the runtime directory holds something that the next host must find."""
        return any(self._runtime_dir.glob(f"{_APART}*"))

    def forget_models(self) -> None:
        """Forget the models whose directories are gone."""
        self._here = {each for each in self._here if os.path.isdir(each)}
