"""Builds the text classifier; nothing here goes into the archive."""

from __future__ import annotations

import re
import string
from collections import Counter
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification

from project.labels import LABELS
from project.model import Classifier
from project.preprocessing import Preprocessor

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def build() -> Classifier:
    """A small BERT with seeded random weights, and a WordPiece tokenizer made from corpus.txt."""
    tokenizer = _tokenizer(Path(__file__).with_name("corpus.txt"))
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


def _tokenizer(corpus: Path) -> Tokenizer:
    vocabulary = _vocabulary(corpus.read_text(encoding="utf-8").lower())
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    ends = [(token, vocabulary[token]) for token in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = processors.BertProcessing(*ends)
    tokenizer.enable_truncation(max_length=128)
    tokenizer.enable_padding(pad_id=vocabulary["[PAD]"])
    return tokenizer


def _vocabulary(text: str) -> dict[str, int]:
    """Ids of all characters, of the words, and of common beginnings and ends of words.

    The tokenizers library's own trainer breaks ties at random, and then no two builds agree.
    """
    words = Counter(re.findall(r"[a-z]+", text))
    parts: Counter[str] = Counter()
    for word in words:
        for cut in range(2, len(word) - 1):
            parts.update((word[:cut], f"##{word[cut:]}"))
    common = words.keys() | {part for part, count in parts.items() if count > 2}
    letters = set(string.ascii_lowercase + string.digits + string.punctuation)
    pieces = [*_SPECIAL, *sorted(letters | {f"##{letter}" for letter in letters} | common)]
    return {piece: number for number, piece in enumerate(pieces)}
