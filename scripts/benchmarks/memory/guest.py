"""What ``memory`` has an interpreter load: a model of transformers', with weights of next to no size.

As a program, with ``bare`` or ``BERT``: a process of its own with the same, until its input ends.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

FIELDS = {"Pss": "pss", "Private_Dirty": "dirty"}

_models: list[Any] = []


def build() -> Any:
    """BERT with small weights."""
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=2)
    return BertModel(config).eval()


def ask(model: Any) -> None:
    """Asks such a model, and keeps it."""
    import torch

    with torch.inference_mode():
        answer = model(torch.arange(16)[None])
    if not torch.isfinite(answer.last_hidden_state).all():
        raise RuntimeError("the model answered nonsense")
    _models.append(model)


def load_and_ask() -> float:
    """Loads BERT and asks it; returns its weights' size in MB."""
    model = build()
    ask(model)
    return sum(weight.nbytes for weight in model.parameters()) / 1e6


def memory() -> dict[str, float]:
    """This process's, without garbage, in MB."""
    gc.collect()
    found = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in FIELDS:
            found[FIELDS[name]] = int(rest.split()[0]) * 1024 / 1e6
    return found


if __name__ == "__main__":
    import torch  # noqa: F401

    if sys.argv[1] == "BERT":
        load_and_ask()
    print("ready", flush=True)
    sys.stdin.read()
