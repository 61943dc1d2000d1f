"""A whole model, pickled by name, as ``torch.save(model, ...)`` writes it."""

import os

import torch


class WholePickle:
    def __init__(self):
        self.model = None

    def initialize(self, context):
        directory = context.system_properties["model_dir"]
        path = os.path.join(directory, context.manifest["model"]["serializedFile"])
        self.model = torch.load(path, weights_only=False, map_location="cpu")
        self.model.eval()

    def handle(self, data, context):
        inputs = torch.tensor([row["body"] for row in data])
        with torch.inference_mode():
            found = self.model(inputs)
        kind = type(self.model)
        return [{"y": y.tolist(), "kind": f"{kind.__module__}.{kind.__qualname__}"} for y in found]
