"""A model of the serving benchmark as mosec's documentation has it served. Runs where mosec is installed."""

from __future__ import annotations

import os
from typing import Any

from mosec import Server, Worker

from benchmarks.serving.models import BATCH_DELAY_MS, MODELS, build

NAME = os.environ["SERVING_MODEL"]
BATCH = MODELS[NAME].batch


class Inference(Worker):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.model = build(NAME)

    def forward(self, data: Any) -> Any:
        return self.model.answer_all(data) if BATCH > 1 else self.model.answer(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        Inference,
        num=int(os.environ["SERVING_WORKERS"]),
        max_batch_size=BATCH,
        max_wait_time=BATCH_DELAY_MS,
    )
    server.run()  # the port: an argument of the command
