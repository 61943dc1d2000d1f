"""A BiLSTM-CRF tagger; the field's inference is torch-struct's.

Lample et al., "Neural Architectures for Named Entity Recognition", 2016 (arXiv:1603.01360);
Rush, "Torch-Struct: Deep Structured Prediction Library", 2020 (arXiv:2002.00876).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch_struct import LinearChainCRF

from project.tags import TAGS, may_follow
from project.words import WordVectors


class Tagger(nn.Module):
    """Sentences in, a tag for each word out.

    Args:
        width: of the words' vectors.
        buckets: of n-grams.
    """

    def __init__(self, width: int, buckets: int) -> None:
        super().__init__()
        self.words = WordVectors(buckets, width)
        self.lstm = nn.LSTM(width, width // 2, num_layers=2, batch_first=True, bidirectional=True)
        self.emissions = nn.Linear(width, len(TAGS))
        nn.init.normal_(self.emissions.weight)  # wide, so that untrained weights tell words apart
        self.transitions = nn.Parameter(torch.randn(len(TAGS), len(TAGS)) / 4)
        allowed = torch.tensor([[may_follow(before, tag) for before in TAGS] for tag in TAGS])
        self.register_buffer("forbidden", ~allowed, persistent=False)

    def forward(self, sentences: list[list[str]]) -> list[dict[str, object]]:
        """The best tags of each sentence, of two words or more.

        Returns:
            For each sentence ``tags``; ``confidence``, each tag's marginal probability; and
            ``score``, the log-probability of all the tags together.
        """
        lengths = torch.tensor([len(sentence) for sentence in sentences])
        # The field's marginals are gradients, for which nothing may come out of inference mode.
        with torch.inference_mode(mode=False), torch.enable_grad():
            field = LinearChainCRF(self.potentials(sentences, lengths), lengths=lengths)
            best, marginals, score = field.argmax, field.marginals, field.log_prob(field.argmax)
        answers: list[dict[str, object]] = []
        for number, length in enumerate(lengths.tolist()):
            tags = self._tags(best[number, : length - 1])
            sure = self._per_word(marginals[number, : length - 1]).gather(1, tags[:, None]).squeeze(1)
            answers.append(
                {
                    "tags": [TAGS[tag] for tag in tags.tolist()],
                    "confidence": sure.detach(),
                    "score": score[number].detach(),
                }
            )
        return answers

    def potentials(self, sentences: list[list[str]], lengths: torch.Tensor) -> torch.Tensor:
        """The field's log-potentials, (sentences, words - 1, tags, tags before)."""
        packed = pack_padded_sequence(self.words(sentences), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        emissions = self.emissions(hidden)
        edges = emissions[:, 1:, :, None] + self.transitions.masked_fill(self.forbidden, -1e4)
        # The first word has no edge of its own: its emissions go on the first edge.
        begun = emissions[:, :1, None, :].masked_fill(self.forbidden[:, TAGS.index("O")], -1e4)
        return torch.cat([edges[:, :1] + begun, edges[:, 1:]], dim=1)

    def _tags(self, edges: torch.Tensor) -> torch.Tensor:
        return self._per_word(edges).argmax(dim=1)

    def _per_word(self, edges: torch.Tensor) -> torch.Tensor:
        """(words - 1, tags, tags before) of edges to (words, tags) of words."""
        return torch.cat([edges[:1].sum(dim=1), edges.sum(dim=2)])
