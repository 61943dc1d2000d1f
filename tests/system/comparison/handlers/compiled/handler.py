"""What the base handler compiles, as its configuration file asks for."""

import torch
from ts.torch_handler.base_handler import BaseHandler


class Compiled(BaseHandler):
    def preprocess(self, data):
        return torch.tensor([row["body"] for row in data], dtype=torch.float32)
