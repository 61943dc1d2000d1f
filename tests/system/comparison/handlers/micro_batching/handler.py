"""TorchServe's micro-batching, with the sizes that its stages saw."""

import torch
from ts.handler_utils.micro_batching import MicroBatching
from ts.torch_handler.base_handler import BaseHandler


class Micro(BaseHandler):
    def __init__(self):
        super().__init__()
        self.handle = MicroBatching(self)

    def initialize(self, context):
        settings = context.model_yaml_config["micro_batching"]
        self.handle.micro_batch_size = settings["micro_batch_size"]
        self.handle.parallelism = settings["parallelism"]
        self.initialized = True

    def preprocess(self, data):
        return torch.tensor([float(row["body"]) for row in data]), len(data)

    def inference(self, data, *args, **kwargs):
        numbers, size = data
        return numbers * 2, size

    def postprocess(self, data):
        numbers, size = data
        return [{"double": number, "sub-batch": size} for number in numbers.tolist()]
