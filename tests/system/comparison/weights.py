"""Weights of the archives: small, of fixed seeds, made by the code that the archive holds."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch


@contextlib.contextmanager
def _beside(directory: Path) -> Iterator[None]:
    """The folder's modules can be imported, and are forgotten afterwards."""
    known = set(sys.modules)
    sys.path.insert(0, str(directory))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(directory):
                del sys.modules[name]


def state_dict(model: str, name: str = "weights.pth") -> Callable[[Path], None]:
    """Writes the state_dict of ``MODULE:CLASS``."""

    def make(directory: Path) -> None:
        torch.save(_model(directory, model).state_dict(), directory / name)

    return make


def whole(model: str, name: str) -> Callable[[Path], None]:
    """Writes the pickled ``MODULE:CLASS`` itself."""

    def make(directory: Path) -> None:
        module, _, kind = model.partition(":")
        with _beside(directory):
            torch.manual_seed(0)
            torch.save(getattr(importlib.import_module(module), kind)(), directory / name)

    return make


def _model(directory: Path, model: str) -> torch.nn.Module:
    module, _, kind = model.partition(":")
    with _beside(directory):
        torch.manual_seed(0)
        made: torch.nn.Module = getattr(importlib.import_module(module), kind)().eval()
    return made


class _Numbers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.second = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if x.dim() > 1 and bool((x.sum() > 0).item()):
            x = x.relu()
        return self.second(x)


def torchscript(kind: str) -> Callable[[Path], None]:
    """Writes a scripted or traced model."""

    def make(directory: Path) -> None:
        torch.manual_seed(0)
        model = _Numbers().eval()
        if kind == "traced":
            made = torch.jit.trace(torch.nn.Sequential(model.first, model.second), torch.ones(1, 3))
        else:
            made = torch.jit.script(model)
        torch.jit.save(made, directory / "model.pt")

    return make


def linear(directory: Path) -> None:
    torch.manual_seed(0)
    torch.jit.save(torch.jit.script(torch.nn.Linear(3, 2)), directory / "model.pt")


def text_classifier(directory: Path) -> None:
    state_dict("model:TextModel")(directory)
    words = ["a", "good", "film", "bad", "do", "not", "see", "this", "it"]
    vocabulary = {word: index for index, word in enumerate(words)}
    for first in words:
        for second in words:
            vocabulary[f"{first} {second}"] = len(vocabulary) % 32
    torch.save(vocabulary, directory / "source_vocab.pt")
    names(["World", "Sports", "Business", "Science"])(directory)


def names(labels: list[str]) -> Callable[[Path], None]:
    def make(directory: Path) -> None:
        mapping = {str(index): label for index, label in enumerate(labels)}
        (directory / "index_to_name.json").write_text(json.dumps(mapping))

    return make


def both(*makers: Callable[[Path], None]) -> Callable[[Path], None]:
    def make(directory: Path) -> None:
        for maker in makers:
            maker(directory)

    return make


def tiny_bert(directory: Path) -> None:
    """A BERT of random weights, with its tokenizer's files, as ``save_pretrained`` writes them."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "##s"]
    (directory / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(vocab=str(directory / "vocab.txt")).save_pretrained(directory)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        id2label={0: "NO", 1: "YES"},
        label2id={"NO": 0, "YES": 1},
    )
    BertForSequenceClassification(config).save_pretrained(directory)


def wheel(directory: Path) -> None:
    """A distribution of one module, and the requirements that find it beside themselves."""
    info = "tiny_dependency-1.0.dist-info"
    files = {
        "tiny_dependency.py": 'WORD = "installed for one model"\n',
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-dependency\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(directory / "tiny_dependency-1.0-py3-none-any.whl", "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
