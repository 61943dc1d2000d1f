"""As TorchServe's text-to-speech example: code in a zip, a path of its own, a file for the answer."""

import logging
import os
import sys
import uuid
import zipfile

import torch
from scipy.io.wavfile import write
from ts.torch_handler.base_handler import BaseHandler

logger = logging.getLogger(__name__)


class WaveGlowSpeechSynthesizer(BaseHandler):
    def initialize(self, ctx):
        model_dir = ctx.system_properties.get("model_dir")
        with zipfile.ZipFile(model_dir + "/tacotron.zip", "r") as file:
            file.extractall(model_dir)
        sys.path.insert(0, os.path.join(model_dir, "tacotron"))
        import waveglow_model
        from text import text_to_sequence

        sys.modules["glow"] = waveglow_model
        self.to_sequence = text_to_sequence
        torch.manual_seed(0)
        self.model = waveglow_model.WaveGlow()
        torch.nn.utils.remove_weight_norm(self.model.upsample)
        self.initialized = True

    def preprocess(self, data):
        text = data[0].get("data") or data[0].get("body")
        return torch.tensor([self.to_sequence(text.decode(), ["english_cleaners"])])

    def inference(self, data, *args, **kwargs):
        with torch.no_grad():
            return self.model.infer(data)

    def postprocess(self, data):
        path = f"/tmp/{uuid.uuid4().hex}.wav"
        write(path, 22050, data[0].numpy())
        with open(path, "rb") as file:
            sound = file.read()
        os.remove(path)
        return [sound]
