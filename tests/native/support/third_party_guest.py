"""Runs in an interpreter, and in the host to tell what is right: work for extension modules, by seed."""

from __future__ import annotations

import functools
from typing import Any

Answer = list[Any]


def numpy(seed: int) -> Answer:
    import numpy as np

    chance = np.random.default_rng(seed)
    matrix = chance.standard_normal((24, 24))
    symmetric = matrix @ matrix.T + np.eye(24)
    order = np.argsort(matrix, axis=None)
    return [
        np.linalg.inv(symmetric).round(9).tolist(),
        np.linalg.eigvalsh(symmetric).round(9).tolist(),
        np.fft.fft(matrix[0]).real.round(9).tolist(),
        order[:10].tolist(),
        np.random.RandomState(seed).randint(0, 10**9, 5).tolist(),
        str(np.array(["text", "longer text"])[seed % 2]),
    ]


def scipy(seed: int) -> Answer:
    import numpy as np
    from scipy import linalg, optimize, sparse, special

    chance = np.random.default_rng(seed)
    matrix = chance.standard_normal((16, 16))
    symmetric = matrix @ matrix.T + np.eye(16)
    grid = sparse.random(40, 40, density=0.1, format="csr", rng=chance)
    # The callback goes through C and back into this interpreter's Python.
    found = optimize.root(lambda x: x**3 - seed - 1, 1.0).x
    return [
        linalg.cho_solve(linalg.cho_factor(symmetric), matrix[0]).round(9).tolist(),
        linalg.expm(matrix / 10).round(9).tolist(),
        (grid @ grid.T).sum(axis=0).round(9).tolist(),
        special.jv(2, np.arange(5.0) + seed).round(9).tolist(),
        found.round(6).tolist(),
    ]


@functools.cache
def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(["The quick brown fox", "jumps over the lazy dog", "ÄÖÜ äöü"] * 3, trainer)
    return tokenizer


def tokenizers(seed: int) -> Answer:
    words = ["quick", "Brown", "fox", "lazy", "dogs", "über", "jumping", "the"]
    text = " ".join(words[(seed * step) % len(words)] for step in range(1, 12))
    encoding = _tokenizer().encode(text)
    batch = _tokenizer().encode_batch([text, text[::-1]])
    return [encoding.ids, encoding.tokens, [list(o) for o in encoding.offsets], [e.ids for e in batch]]
