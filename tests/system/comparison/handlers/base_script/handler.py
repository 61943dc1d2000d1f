"""TorchServe's base handler, taught to read a JSON body, and a TorchScript model."""

import torch
from ts.torch_handler.base_handler import BaseHandler


class Numbers(BaseHandler):
    def preprocess(self, data):
        return torch.tensor([row["body"] for row in data], dtype=torch.float32)

    def postprocess(self, data):
        return data.tolist()
