"""A model that is nearly all weights: megabytes (10⁶ bytes) of float32.

As a program it writes the model's state_dict to a file, and prints what it answers, as JSON.
"""

from __future__ import annotations

import json
import os
import sys

import torch

WIDTH = 8
_ROW = 1000
_ROWS_OF_A_MB = 250
_BLOCK_MB = 10  # at most, as large layers have
_PAGE = 1024  # float32 numbers


class Weights(torch.nn.Module):
    """``[8] -> [8]``, by a corner of the first and of the last block; its numbers mean nothing."""

    def __init__(self, megabytes: int) -> None:
        super().__init__()
        self.head = torch.nn.Parameter(torch.empty(WIDTH))
        self.blocks = torch.nn.ParameterList(
            torch.empty(min(_BLOCK_MB, megabytes - begun) * _ROWS_OF_A_MB, _ROW)
            for begun in range(0, megabytes, _BLOCK_MB)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(self.blocks):
            for block in (self.blocks[0], self.blocks[-1]):
                x = block[:WIDTH, :WIDTH] @ x
        return self.head * x

    def touch(self) -> None:
        """Read of every page."""
        with torch.inference_mode():
            for each in self.parameters():
                each.flatten()[::_PAGE].sum()


def build() -> Weights:
    """With as many megabytes as $WEIGHTS_MB says, the same numbers in every process."""
    torch.manual_seed(0)
    model = Weights(int(os.environ["WEIGHTS_MB"])).eval()
    with torch.no_grad():
        for each in model.parameters():
            each.normal_()
    return model


if __name__ == "__main__":
    built = build()
    torch.save(built.state_dict(), sys.argv[1])
    with torch.inference_mode():
        print(json.dumps(built(torch.ones(WIDTH)).tolist()))
