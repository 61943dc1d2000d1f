"""The handler file of a hermetic .mar: ``torch-model-archiver --handler "$(interpool handler)"``.

Its name in a .mar's manifest makes the archive hermetic. With the overlay that is all it does: the
pool host's interpreters serve the package, and never run this file. An unchanged TorchServe's
worker imports this file, which imports the installed interpool. That serves the package, which the
manifest names as serializedFile, through a pool of that worker's own.
"""

from __future__ import annotations

import sys
from typing import Any


class HermeticHandler:
    """The one class of this file, as TorchServe's loader expects it."""

    _model: Any

    def initialize(self, context: Any) -> None:
        """Open the package; raises an error that says what is wrong with it."""
        # Not at the top: TorchServe's loader takes an ImportError there for a missing file.
        try:
            from interpool.handler.model import open_model
        except ModuleNotFoundError as error:
            raise RuntimeError(
                f"this model was packed by interpool, and {sys.executable} cannot import it "
                f"({error}): install interpool where TorchServe runs"
            ) from error
        self._model = open_model(context)

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        """Answer a batch: one entry per request."""
        answers: list[Any] = self._model.handle(data, context)
        return answers
