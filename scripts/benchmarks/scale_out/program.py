"""Models on Ray Serve. Each line of its input is ``SECONDS CLIENTS``: it prints the rate by handles.

``SCALE_KIND`` says what a replica is. ``processes``: one copy of a model, as Ray's documentation has it.
``pool``: one for all copies of all models. ``SCALE_MODELS`` and ``SCALE_COPIES`` say how many there are.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

import interpool.ray
from benchmarks.serving.models import REQUEST, build

MODEL = "small"
KIND, PORT = os.environ["SCALE_KIND"], int(os.environ["SERVING_PORT"])
MODELS, COPIES = int(os.environ["SCALE_MODELS"]), int(os.environ["SCALE_COPIES"])
CORES = os.cpu_count() or 1
# A part of a core each, as the documentation does if there are to be more replicas than cores.
CPUS = CORES / (MODELS * COPIES + 2)


@serve.deployment(num_replicas=COPIES, ray_actor_options={"num_cpus": CPUS})  # type: ignore[untyped-decorator]
class Model:
    def __init__(self) -> None:
        self.model = build(MODEL)

    async def __call__(self, request: Request) -> dict[str, Any]:
        return self.model.answer(await request.json())

    async def predict(self, value: dict[str, Any]) -> dict[str, Any]:
        return self.model.answer(value)


def run() -> tuple[Any, tuple[Any, ...]]:
    """Have all copies ready; gives a handle, and what its ``predict`` is called with."""
    names = [f"{MODEL}-{number}" for number in range(MODELS)]
    if KIND == "pool":
        archive = {"url": os.environ["SCALE_ARCHIVE"], "workers": COPIES}
        options = {"ray_actor_options": {"num_cpus": CORES}}
        application = interpool.ray.app(dict.fromkeys(names, archive), options=options)
        return serve.run(application), (names[0], REQUEST)
    handles = [serve.run(Model.bind(), name=name, route_prefix=f"/predictions/{name}") for name in names]
    return handles[0], (REQUEST,)


async def rate(handle: Any, arguments: tuple[Any, ...], seconds: float, clients: int) -> float:
    """Right answers a second, to clients that wait for each."""
    expected = build(MODEL).answer(REQUEST)
    begun = time.perf_counter()

    async def client() -> int:
        count = 0
        while time.perf_counter() - begun < seconds:
            answer = await handle.predict.remote(*arguments)
            if isinstance(answer, bytes):  # as a handler of TorchServe's answers
                answer = json.loads(answer)
            if answer != expected:
                raise RuntimeError(f"{answer}, which is not {expected}")
            count += 1
        return count

    counts = await asyncio.gather(*(client() for _ in range(clients)))
    return sum(counts) / (time.perf_counter() - begun)


async def answer_lines(handle: Any, arguments: tuple[Any, ...]) -> None:
    """In one event loop, which is the router's, too."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        seconds, clients = line.split()
        print("rate", await rate(handle, arguments, float(seconds), int(clients)), flush=True)


if __name__ == "__main__":
    ray.init(num_cpus=CORES, include_dashboard=False, log_to_driver=False, object_store_memory=200_000_000)
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    running, called_with = run()
    print("ready", flush=True)
    asyncio.run(answer_lines(running, called_with))
    serve.shutdown()
    ray.shutdown()
