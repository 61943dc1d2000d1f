"""How many examples a property of hypothesis is tried with; scripts/test --long asks for more."""

from __future__ import annotations

import os

EXAMPLES = int(os.environ.get("EXAMPLES_EACH", "100"))
