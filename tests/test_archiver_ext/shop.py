"""A user's project whose import graph is known line by line."""

from __future__ import annotations

from pathlib import Path

SOURCES = {
    "shop/__init__.py": "",
    "shop/factory.py": (
        "import torch\n"
        "from shop.nets.price import Price\n"
        "def build():\n"
        "    torch.manual_seed(0)\n"
        "    return Price()\n"
    ),
    "shop/nets/__init__.py": "from shop import rates\n",
    "shop/nets/price.py": (
        "import os.path\n"
        "import torch\n"
        "from torch import nn\n"
        "from shop.nets import layers\n"
        "from shop.rates import RATE\n"
        "from ..rates import RATE as AGAIN\n"
        "\n"
        "class Price(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.body = layers.Body()\n"
        "        self.tied = self.body.weight\n"
        "        self.half = nn.Linear(2, 2).half()\n"
        "    def forward(self, x):\n"
        "        import numpy.random\n"
        "        return self.body(x) * RATE\n"
    ),
    "shop/nets/layers.py": (
        "from torch import nn\n"
        "class Body(nn.Linear):\n"
        "    def __init__(self):\n"
        "        super().__init__(4, 3)\n"
    ),
    "shop/rates.py": "table = __import__('annotated_types')\nRATE = 2\n",
}


def write_shop(root: Path) -> Path:
    """Write the project below ``root``; gives its directory."""
    for name, source in SOURCES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return root
