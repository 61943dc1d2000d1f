"""A base handler that explains and describes."""

import torch
from ts.torch_handler.base_handler import BaseHandler


class Described(BaseHandler):
    def preprocess(self, data):
        rows = [row.get("body") or row.get("data") for row in data]
        rows = [row["inputs"] if isinstance(row, dict) else row for row in rows]
        return torch.tensor(rows, dtype=torch.float32)

    def get_insights(self, tensor_data, _raw, target):
        weights = self.model.weight.detach()
        return [{"target": target, "importance": (row * weights[target]).tolist()} for row in tensor_data]

    def describe_handle(self):
        return {"description": "two outputs", "inputs": {"shape": [3]}}
