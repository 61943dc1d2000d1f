from pathlib import Path

import torch
import yaml
from nets.instantiate import instantiate

POSTPROCESS = {"_target_": "nets.postprocess.TopK", "k": 2}


def build():
    torch.manual_seed(9)
    config = yaml.safe_load((Path(__file__).parent / "conf" / "model.yaml").read_text())
    model = instantiate(config | {"postprocess": None})
    model.postprocess = POSTPROCESS
    return model.eval()


def example_inputs():
    return torch.tensor([[0.5, -1.0, 2.0]])
