from dataclasses import dataclass

import torch
from torch import nn

from .cache import KeyValueCache


@dataclass
class DecoderOutput:
    logits: torch.Tensor
    cache: KeyValueCache


class Decoder(nn.Module):
    def __init__(self, words=16, width=8):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.project = nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, words)

    def step(self, tokens, cache):
        queries, keys, values = self.project(self.embedding(tokens)).chunk(3, dim=-1)
        keys, values = cache.update(keys, values)
        first = len(cache) == tokens.shape[1]
        attended = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=first)
        return DecoderOutput(self.head(attended), cache)

    def forward(self, tokens):
        cache, made = KeyValueCache(), []
        for _ in range(5):
            output = self.step(tokens, cache)
            tokens, cache = output.logits[:, -1:].argmax(dim=-1), output.cache
            made.append(tokens)
        return torch.cat(made, dim=1)
