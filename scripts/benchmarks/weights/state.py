"""Writes the state_dict of the model of $WEIGHTS_MB to a file, and prints what it answers, as JSON."""

from __future__ import annotations

import json
import sys

import torch

from benchmarks.weights.model import WIDTH, build


def main() -> None:
    model = build()
    torch.save(model.state_dict(), sys.argv[1])
    with torch.inference_mode():
        print(json.dumps(model(torch.ones(WIDTH)).tolist()))


if __name__ == "__main__":
    main()
