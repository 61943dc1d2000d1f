"""As TorchServe's MNIST example: the image classifier with a profile and an answer of its own."""

import torch
from PIL import Image
from torch.profiler import ProfilerActivity
from ts.torch_handler.vision_handler import VisionHandler


class MNISTDigitClassifier(VisionHandler):
    def __init__(self):
        super().__init__()
        self.profiler_args = {"activities": [ProfilerActivity.CPU], "record_shapes": True}

    def image_processing(self, image: Image.Image):
        pixels = image.convert("L").resize((28, 28)).tobytes()
        return torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(1, 28, 28) / 255

    def postprocess(self, data):
        return data.argmax(1).tolist()
