"""Says where TorchServe has put it; insists on its GPU if its name says so."""

import os

import torch
from ts.torch_handler.base_handler import BaseHandler


class Placed(BaseHandler):
    def initialize(self, context):
        super().initialize(context)
        self.gpu = context.system_properties["gpu_id"]
        if context.model_name == "insists":
            self.weight = torch.ones(1).cuda(self.gpu)

    def handle(self, data, context):
        place = [self.gpu, self.map_location, str(self.device), os.environ.get("CUDA_VISIBLE_DEVICES")]
        return [place] * len(data)
