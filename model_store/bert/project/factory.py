"""Builds the text classifier; nothing here goes into the archive."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification

from project.labels import LABELS
from project.model import Classifier
from project.preprocessing import Preprocessor
from project.tokenizer import make_tokenizer


def build() -> Classifier:
    """A small BERT with seeded random weights, and a WordPiece tokenizer made from corpus.txt."""
    tokenizer = make_tokenizer(Path(__file__).with_name("corpus.txt"))
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=128,
        num_labels=len(LABELS),
        initializer_range=0.2,  # wide, so that untrained weights tell texts apart
    )
    with torch.random.fork_rng():
        torch.manual_seed(7)
        network = BertForSequenceClassification(config).eval()
    return Classifier(network, Preprocessor(tokenizer))


def example_inputs() -> list[dict[str, object]]:
    """A batch of two requests, as TorchServe hands them over."""
    return [{"body": {"text": "What a lovely day it was."}}, {"body": b"Where is my parcel?"}]
