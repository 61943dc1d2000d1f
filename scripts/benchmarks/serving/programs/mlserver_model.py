"""A model of the serving benchmark as MLServer's documentation has it served. Runs if that is installed.

As a program it writes a folder with the settings of each name, and is then ``mlserver start`` of that folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse

from benchmarks.serving.models import BATCH_DELAY_MS, MODELS, build
from benchmarks.serving.tensors import ANSWER

NAME = os.environ["SERVING_MODEL"]
BATCH = MODELS[NAME].batch


class Model(MLModel):  # type: ignore[misc]
    async def load(self) -> bool:
        self.model = build(NAME)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        asked = StringCodec.decode_input(payload.inputs[0])
        answers = self.model.answer_all([json.loads(each) for each in asked])
        output = StringCodec.encode_output(ANSWER, [json.dumps(each) for each in answers])
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=[output])


if __name__ == "__main__":
    folder = Path(os.environ["TMPDIR"]) / "models"
    for name in os.environ["SERVING_NAMES"].split():
        model = {"name": name, "implementation": "benchmarks.serving.programs.mlserver_model.Model"}
        batches = {"max_batch_size": BATCH, "max_batch_time": BATCH_DELAY_MS / 1000} if BATCH > 1 else {}
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "model-settings.json").write_text(json.dumps({**model, **batches}))
    settings = {
        "host": "127.0.0.1",
        "http_port": int(os.environ["SERVING_PORT"]),
        "grpc_port": 0,  # any that is free; no client asks there
        "metrics_endpoint": None,
        "metrics_dir": str(folder),
        "environments_dir": str(folder),
        "parallel_workers": int(os.environ["SERVING_WORKERS"]),
        "debug": False,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    command = [str(Path(sys.executable).with_name("mlserver")), "start", str(folder)]
    os.execv(command[0], command)
