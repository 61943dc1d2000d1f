"""A model of the serving benchmark as Ray Serve's documentation has it served. Runs where Ray is installed.

Each line of its input is a number of replicas, to which the running application is scaled, or ``another``:
another application with the model, at ``/another``, until a line ``no other``. Its end is the end.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

from benchmarks.serving.models import build

# A part of a core each, as the documentation does where there are to be more replicas than cores.
CPUS = (os.cpu_count() or 1) / (int(os.environ["SERVING_MOST"]) + 2)


@serve.deployment(ray_actor_options={"num_cpus": CPUS})  # type: ignore[untyped-decorator]
class Model:
    def __init__(self, name: str) -> None:
        self.model = build(name)

    async def __call__(self, request: Request) -> dict[str, Any]:
        return self.model.answer(await request.json())


def run(replicas: int, name: str = "default", path: str = "/predict") -> None:
    application = Model.options(num_replicas=replicas).bind(os.environ["SERVING_MODEL"])
    serve.run(application, name=name, route_prefix=path)


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(os.environ["SERVING_PORT"])})
    run(int(os.environ["SERVING_WORKERS"]))
    for line in sys.stdin:
        if line == "another\n":
            run(1, "another", "/another")
        elif line == "no other\n":
            serve.delete("another")
        else:
            run(int(line))
    serve.shutdown()
    ray.shutdown()
