"""A model of the serving benchmark as Ray Serve's documentation has it served. Runs if Ray is installed.

Each line of its input is a name and a number of replicas. It deploys an application with the model at
``/NAME``, or scales it, or removes it if there are to be none. The input's end is the end.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

from benchmarks.serving.models import BATCH_DELAY_MS, MODELS, build

# A part of a core each, as the documentation does if there are to be more replicas than cores.
CPUS = (os.cpu_count() or 1) / (int(os.environ["SERVING_MOST"]) + 2)


@serve.deployment(ray_actor_options={"num_cpus": CPUS})  # type: ignore[untyped-decorator]
class Model:
    def __init__(self, name: str) -> None:
        self.model = build(name)

        self.batch = self.model.batch

    @serve.batch(  # type: ignore[untyped-decorator]
        max_batch_size=MODELS[os.environ["SERVING_MODEL"]].batch, batch_wait_timeout_s=BATCH_DELAY_MS / 1000
    )
    async def answer_all(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return self.model.answer_all(requests)

    async def __call__(self, request: Request) -> dict[str, Any]:
        asked = await request.json()
        answer: dict[str, Any] = await self.answer_all(asked) if self.batch > 1 else self.model.answer(asked)
        return answer


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(os.environ["SERVING_PORT"])})
    for line in sys.stdin:
        name, replicas = line.split()
        if replicas == "0":
            serve.delete(name)
        else:
            application = Model.options(num_replicas=int(replicas)).bind(os.environ["SERVING_MODEL"])
            serve.run(application, name=name, route_prefix=f"/{name}")
    serve.shutdown()
    ray.shutdown()
