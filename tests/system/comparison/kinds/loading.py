"""Models as they are kept: TorchScript, a state_dict with its module, a whole pickle, a hub's files."""

from __future__ import annotations

from system.comparison import weights
from system.comparison.archive import Archive, Request, post

NUMBERS = [post([1.0, 2.0, 3.0]), post([0.5, -2.0, 0.25]), post([-9.0, -9.0, -9.0]), post([1.0]), post("x")]

ARCHIVES = [
    Archive(
        kind,
        folder="base_script",
        handler="handler.py",
        serialized="model.pt",
        make=weights.torchscript(kind),
        requests=NUMBERS,
        statuses=[200, 200, 200, 503, 503],
    )
    for kind in ("scripted", "traced")
] + [
    Archive(
        "eager",
        handler="handler.py",
        model_file="net.py",
        serialized="weights.pth",
        make=weights.state_dict("net:Net"),
        extra=["layers/__init__.py", "layers/scaled.py"],
        requests=[post([1.0, 2.0, 3.0]), post([0.25]), post([1.0, 2.0, 3.0]), post([])],
        statuses=[200, 200, 200, 503],
        options={"initial_workers": 1},
    ),
    Archive(
        "whole_pickle",
        handler="handler.py",
        model_file="pickled_model.py",
        serialized="whole.bin",
        make=weights.whole("pickled_model:PickledNet", "whole.bin"),
        requests=[post([1.0, 2.0]), post([-3.0, 2.0]), post([1.0])],
        statuses=[200, 200, 503],
    ),
    Archive(
        "transformer",
        handler="handler.py",
        make=weights.tiny_bert,
        extra=["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"],
        requests=[Request(b"a good film", "text/plain"), post({"text": "bad films"}), post({"txt": "x"})],
        statuses=[503, 200, 503],
    ),
]
