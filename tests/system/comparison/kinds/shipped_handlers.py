"""The handlers that TorchServe ships, with small models."""

from __future__ import annotations

import base64
import functools
import importlib.util
import io
import json
import shutil
from pathlib import Path

from PIL import Image
from system.comparison import weights
from system.comparison.archive import JSON, Archive, Request, post, post_bytes

HAVE_VISION = importlib.util.find_spec("torchvision") is not None
VISION = [] if HAVE_VISION else ["torchvision"]


def vision(directory: Path) -> None:
    """Brings torchvision along if it is not installed."""
    if not HAVE_VISION:
        shutil.copytree(Path(__file__).parent.parent / "vision" / "torchvision", directory / "torchvision")


@functools.cache
def image(width: int = 40, height: int = 32, kind: str = "PNG") -> bytes:
    """A picture with something in it."""
    picture = Image.new("RGB", (width, height))
    picture.putdata([(x * 7 % 256, y * 5 % 256, x * y % 256) for y in range(height) for x in range(width)])
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


def _encoded(row: bytes) -> str:
    return base64.b64encode(row).decode()


ARCHIVES = [
    Archive(
        "image_classifier",
        handler="image_classifier",
        model_file="model.py",
        serialized="weights.pth",
        make=weights.both(
            vision,
            weights.state_dict("model:SmallNet"),
            weights.names(["cat", "dog", "bird", "fish", "cow", "ant"]),
        ),
        extra=["index_to_name.json", *VISION],
        requests=[
            post_bytes(image()),
            post_bytes(image(kind="JPEG"), "image/jpeg"),
            Request(_encoded(image()).encode(), "text/plain"),
            Request(image(300, 260), "image/png", path="/explanations/{model}"),
            Request(image(300, 260), "image/png", path="/predictions/{model}/1.0"),
            post_bytes(b"this is no image"),
            post([[0.0, 1.0]]),
            Request(image(), "image/png", path="/v1/models/{model}:predict"),
        ],
        statuses=[200, 200, 200, 200, 200, 503, 503, 200],
    ),
    Archive(
        "image_segmenter",
        handler="image_segmenter",
        model_file="model.py",
        serialized="weights.pth",
        make=weights.both(vision, weights.state_dict("model:Segments")),
        extra=VISION,
        requests=[post_bytes(image()), post_bytes(b"no image")],
        statuses=[200, 503],
    ),
    Archive(
        "object_detector",
        handler="object_detector",
        model_file="model.py",
        serialized="weights.pth",
        make=weights.both(
            vision, weights.state_dict("model:Detector"), weights.names(["person", "car", "bench", "dog"])
        ),
        extra=["index_to_name.json", *VISION],
        requests=[post_bytes(image()), post_bytes(image(64, 64)), post_bytes(b"no image")],
        statuses=[200, 200, 503],
    ),
    Archive(
        "text_classifier",
        handler="text_classifier",
        model_file="model.py",
        serialized="weights.pth",
        make=weights.text_classifier,
        extra=["source_vocab.pt", "index_to_name.json"],
        requests=[
            Request(b"A good film", "text/plain"),
            Request(b"Don't see <b>this</b> film!", "text/plain"),
            Request(b"a good film", "application/octet-stream"),
            post("a bad film"),
            Request(b"unheard of", "text/plain"),
            Request(b"a good film", "text/plain", path="/explanations/{model}"),
            Request(
                json.dumps({"text": "a good film", "target": 1}).encode(), JSON, path="/explanations/{model}"
            ),
        ],
        statuses=[200, 200, 200, 200, 503, 200, 503],
    ),
]
