"""Eager with a state_dict: the base handler imports the model's file by name."""

import torch
from ts.torch_handler.base_handler import BaseHandler


class Numbers(BaseHandler):
    def preprocess(self, data):
        return torch.tensor([row["body"] for row in data], dtype=torch.float32)

    def inference(self, data, *args, **kwargs):
        if data.shape[1] == 1:  # a model that changes its own weights, which others must not see
            with torch.no_grad():
                self.model.linear.weight.mul_(1.0).add_(data[0, 0])
            data = data.expand(-1, 3).contiguous()
        return super().inference(data, *args, **kwargs)
