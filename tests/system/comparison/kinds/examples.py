"""Handlers in the style of TorchServe's examples, with small models."""

from __future__ import annotations

import zipfile
from pathlib import Path

from system.comparison import weights
from system.comparison.archive import Archive, Request, post, post_bytes
from system.comparison.kinds.shipped_handlers import image


def _zipped_code(directory: Path) -> None:
    with zipfile.ZipFile(directory / "tacotron.zip", "w") as file:
        file.writestr("tacotron/text/__init__.py", "from text.symbols import text_to_sequence\n")
        file.writestr(
            "tacotron/text/symbols.py",
            "LETTERS = {letter: number for number, letter in enumerate('abcdefghijklmnopqrstuvwxyz ')}\n"
            "def text_to_sequence(text, cleaners):\n    return [LETTERS.get(one, 0) for one in text]\n",
        )


ARCHIVES = [
    Archive(
        "digits",
        handler="handler.py",
        model_file="model.py",
        serialized="weights.pth",
        make=weights.state_dict("model:Net"),
        requests=[post_bytes(image()), post_bytes(image(28, 28))],
        statuses=[200, 200],
    ),
    Archive(
        "recommender",
        handler="handler.py",
        model_file="model.py",
        serialized="weights.pth",
        make=weights.state_dict("model:DLRM"),
        requests=[post({"float_features": [0.1] * 13, "id": [[1, 2], [3], [4, 5, 6]]})],
        statuses=[200],
    ),
    Archive(
        "speech",
        handler="handler.py",
        make=_zipped_code,
        extra=["tacotron.zip", "waveglow_model.py"],
        requests=[Request(b"hello world", "application/octet-stream")],
        statuses=[200],
    ),
    Archive(
        "compiled",
        handler="handler.py",
        model_file="net.py",
        serialized="weights.pth",
        make=weights.state_dict("net:Net"),
        config="pt2:\n  compile:\n    enable: True\n    backend: inductor\n",
        requests=[post([1.0, 2.0, 3.0])],
        statuses=[200],
    ),
]
