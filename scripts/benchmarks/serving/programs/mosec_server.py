"""A model of the serving benchmark as mosec's documentation has it served. Runs where mosec is installed."""

from __future__ import annotations

import os
from typing import Any

from mosec import Server, Worker

from benchmarks.serving.models import build


class Inference(Worker):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.model = build(os.environ["SERVING_MODEL"])

    def forward(self, data: dict[str, Any]) -> dict[str, Any]:
        return self.model.answer(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Inference, num=int(os.environ["SERVING_WORKERS"]))
    server.run()  # the port: an argument of the command
