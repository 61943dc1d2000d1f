"""A handler as TorchServe's users write them: it reads the files beside the model, and its configuration."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import torch


class Labelled:
    def __init__(self) -> None:
        torch.manual_seed(7)
        self.network = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

    def initialize(self, context: Any) -> None:
        directory = Path(context.system_properties["model_dir"])
        self.labels = (directory / "labels.txt").read_text().split()
        self.more = json.loads((directory / "deep/more.json").read_text())
        self.scale = context.model_yaml_config["handler"]["scale"]
        self.version = context.manifest["model"]["modelVersion"]
        tool = context.model_yaml_config["handler"].get("tool")
        self.tool = importlib.import_module(tool).WORD if tool else "no tool"

    @torch.inference_mode()
    def handle(self, data: list[dict[str, Any]], _context: Any) -> list[dict[str, Any]]:
        scores = self.network(torch.tensor([row["body"] for row in data])) * self.scale
        return [
            {
                "label": self.labels[int(row.argmax())],
                "scores": row.tolist(),
                "version": self.version,
                "tool": self.tool,
                **self.more,
            }
            for row in scores
        ]


def labelled() -> Labelled:
    return Labelled()
