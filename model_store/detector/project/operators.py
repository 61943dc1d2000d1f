"""The region operators, from the library beside this file; build_ops.py makes it."""

from __future__ import annotations

from pathlib import Path

import torch

torch.ops.load_library(str(Path(__file__).with_name("region_ops.so")))

suppress = torch.ops.region_ops.suppress
align = torch.ops.region_ops.align
