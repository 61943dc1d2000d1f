"""Makes the WordPiece tokenizer that a published BERT would come with."""

from __future__ import annotations

import re
import string
from collections import Counter
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def make_tokenizer(corpus: Path) -> Tokenizer:
    """A tokenizer of the corpus' words and of common parts of them."""
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
