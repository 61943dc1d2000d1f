"""A Hugging Face model from files in the archive."""

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
from ts.torch_handler.base_handler import BaseHandler


class Transformer(BaseHandler):
    def initialize(self, context):
        self.manifest = context.manifest
        directory = context.system_properties["model_dir"]
        config = AutoConfig.from_pretrained(directory)
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.model = AutoModelForSequenceClassification.from_pretrained(directory, config=config).eval()
        self.initialized = True

    def preprocess(self, data):
        texts = [row.get("data") or row.get("body") for row in data]
        texts = [text.decode() if isinstance(text, (bytes, bytearray)) else text["text"] for text in texts]
        return self.tokenizer(texts, padding=True, return_tensors="pt")

    @torch.inference_mode()
    def inference(self, data, *args, **kwargs):
        return self.model(**data).logits

    def postprocess(self, data):
        return [
            {"label": self.model.config.id2label[int(row.argmax())], "logits": row.tolist()} for row in data
        ]
