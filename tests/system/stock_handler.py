"""A handler as TorchServe's users write them: it knows nothing of interpool."""

from __future__ import annotations

import os
import sys
from typing import Any


class StockHandler:
    def initialize(self, context: Any) -> None:
        self.name = context.model_name

    def handle(self, data: list[Any], context: Any) -> list[Any]:
        modules = [name for name in sys.modules if name.partition(".")[0] == "interpool"]
        return [
            {
                "pid": os.getpid(),
                "model": self.name,
                "argv": sys.orig_argv,
                "ts": sys.modules["ts"].__file__,
                "interpool": modules,
            }
            for _ in data
        ]
