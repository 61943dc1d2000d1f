"""Image models of libraries, small and with seeded weights, packed as somebody would who uses them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
from PIL import Image

LABELS = ("a cat", "a dog", "a ship", "a plane", "nothing of it")
Prepare = Callable[[Image.Image], torch.Tensor]


class Classifier:
    """A handler: images in, each label's probability out."""

    def __init__(self, network: torch.nn.Module, prepare: Prepare) -> None:
        self.network = network
        self.prepare = prepare

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[dict[str, float]]:
        bodies = [row.get("body") or row.get("data") for row in data]
        images = [Image.open(io.BytesIO(body)).convert("RGB") for body in bodies]
        with torch.inference_mode():
            answer = self.network(torch.stack([self.prepare(image) for image in images]))
        scores = answer.logits if hasattr(answer, "logits") else answer
        return [dict(zip(LABELS, row.tolist(), strict=True)) for row in scores.softmax(dim=1)]


class _Processed:
    """What transformers makes of an image, as a function."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, image: Image.Image) -> torch.Tensor:
        (found,) = self.processor(image, return_tensors="pt")["pixel_values"]
        return torch.as_tensor(found)


def vit() -> Classifier:
    from transformers import ViTConfig, ViTForImageClassification
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        num_labels=len(LABELS),
    )
    size = {"height": 32, "width": 32}
    return Classifier(ViTForImageClassification(config).eval(), _Processed(ViTImageProcessorPil(size=size)))


def resnet() -> Classifier:
    from torchvision.models import resnet18
    from torchvision.transforms import v2

    torch.manual_seed(0)
    prepare = v2.Compose([
        v2.Resize((64, 64)),
        v2.PILToTensor(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])  # fmt: skip
    return Classifier(resnet18(weights=None, num_classes=len(LABELS)).eval(), prepare)


def example_inputs() -> list[dict[str, bytes]]:
    """A batch of two requests."""
    return [{"body": png(colour)} for colour in ("teal", "orange")]


def png(colour: str) -> bytes:
    """A gradient in a colour."""
    grey = Image.linear_gradient("L").resize((80, 50))
    image = Image.composite(Image.new("RGB", grey.size, colour), Image.new("RGB", grey.size), grey)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
