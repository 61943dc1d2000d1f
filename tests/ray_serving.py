"""A deployment of interpool in a Ray that runs: deployed as `serve deploy` does, and asked."""

from __future__ import annotations

import runpy
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from local_server import JSON, PATIENCE_S
from paths import ROOT
from stock_archiver import wrap
from waiting import wait_for

NAME = "interpool"
HANDLER = """
import os, time
import torch


class Handler:
    def initialize(self, context):
        generator = torch.Generator().manual_seed({seed})
        self.weight = torch.randn(3, 2, generator=generator)

    def handle(self, data, context):
        return [self.answer(row["body"]) for row in data]

    def answer(self, asked):
        begun = time.monotonic()
        time.sleep(asked.get("sleep", 0))
        y = torch.tanh(torch.tensor(asked["x"]) @ self.weight).tolist()
        return {{"y": y, "pid": os.getpid(), "begun": begun, "ended": time.monotonic()}}
"""


def make_archive(folder: Path, name: str, seed: int, config: str = "") -> Path:
    """An ordinary archive, ``NAME.mar``, of a model with weights of that seed."""
    handler, settings = folder / f"{name}.py", folder / f"{name}.yaml"
    handler.write_text(HANDLER.format(seed=seed))
    settings.write_text(config)
    return folder / wrap(name, handler, folder, config_file=settings if config else None)


def own_numbers(archive: Path, x: list[float]) -> list[float]:
    """What that archive's model says, run in this process."""
    handler = runpy.run_path(str(archive.with_suffix(".py")))["Handler"]()
    handler.initialize(None)
    y: list[float] = handler.answer({"x": x})["y"]
    return y


def deploy(models: dict[str, Any], **deployment: Any) -> Any:
    """Have the sample with these models, and these settings of its deployment; gives its handle."""
    from ray import serve
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    config = yaml.safe_load((ROOT / "configs/ray/serve.yaml").read_text())
    (application,) = config["applications"]
    application["deployments"][0] |= {**deployment, "user_config": {"models": models}}
    _get_global_client().deploy_apps(ServeDeploySchema.model_validate({"applications": [application]}))
    wait_for(lambda: serve.status().applications[NAME].status == "RUNNING", deployed, PATIENCE_S, 0.2)
    return serve.get_app_handle(NAME)


def deployed() -> str:
    """How the application stands, for people."""
    from ray import serve

    return f"the application: {serve.status().applications[NAME]}"


def replicas() -> list[dict[str, Any]]:
    """Those that run, each with its ``pid``, ``node_id`` and ``actor_id``."""
    from ray.serve.context import _get_global_client

    applications = _get_global_client().get_serve_details()["applications"]
    every = applications[NAME]["deployments"][NAME]["replicas"]
    return [each for each in every if each["state"] == "RUNNING"]


def over_http(port: int, model: str, body: bytes) -> bytes:
    """The answer to a request through Ray's proxy; raises OSError for any status but 200."""
    url = f"http://127.0.0.1:{port}/predictions/{model}"
    with urllib.request.urlopen(
        urllib.request.Request(url, body, {"Content-Type": JSON}), timeout=60
    ) as answer:
        said: bytes = answer.read()
    return said
