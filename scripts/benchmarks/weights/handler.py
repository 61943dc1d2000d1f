"""The model's handlers: to be packed with its weights, and as source beside its state_dict."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import torch

from benchmarks.weights import model
from benchmarks.weights.model import WIDTH, Weights


class Packed:
    """Answers with the model's output for ones, and says so on stdout; its weights come with it."""

    model: Weights

    def initialize(self, context: Any) -> None:
        self.x = torch.ones(WIDTH)
        self.model.touch()
        print(f"touched {uuid.uuid4().hex}")  # once in each process, or interpreter, that has loaded it

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[list[float]]:
        answers = []
        for row in data:
            request = row.get("body") or row.get("data")
            with torch.inference_mode():
                answers.append(self.model(self.x).tolist())
            print(f"answered {request['id']}")
        return answers


class Stock(Packed):
    """The same, loaded as TorchServe's BaseHandler loads what was not scripted.

    The state_dict's file is named after its megabytes.
    """

    def initialize(self, context: Any) -> None:
        file = Path(context.system_properties["model_dir"], context.manifest["model"]["serializedFile"])
        self.model = Weights(int(file.stem)).eval()
        self.model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
        super().initialize(context)


def build() -> Packed:
    handler = Packed()
    handler.model = model.build()
    return handler
