"""A model that asks for memory without end, as a user would have written it by mistake."""

from __future__ import annotations

from typing import Any

import torch


class Hungry:
    """A handler: keeps what it makes, in the way that the request names, until it is refused."""

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        way = data[0].get("body", {}).get("way")
        kept: list[Any] = []
        while way:
            kept.append(bytearray(8 << 20) if way == "bytes" else torch.ones(2 << 20))
        return ["well"] * len(data)


def hungry() -> Hungry:
    return Hungry()
