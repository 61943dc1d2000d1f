"""Handlers that remember what they were asked, packed or as ordinary files."""

from __future__ import annotations

import os
import sys
import time
from typing import Any


class Counter:
    """Counts its calls, and does what the request says."""

    def initialize(self, context: Any) -> None:
        self.count = 0

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        answers = []
        for row in data:
            wish = row.get("body") or row.get("data")
            wish = wish if isinstance(wish, dict) else {}
            self.count += 1
            if "exit" in wish:
                sys.exit(wish["exit"])
            while "until" in wish and not os.path.exists(wish["until"]):
                time.sleep(0.02)
            answers.append({"count": self.count, "worker": id(self)})
        return answers


class Sequences:
    """Counts the requests of each sequence."""

    def initialize(self, context: Any) -> None:
        self.counts: dict[str, int] = {}

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        answers = []
        for index in range(len(data)):
            sequence = context.get_sequence_id(index)
            self.counts[sequence] = self.counts.get(sequence, 0) + 1
            answers.append({"sequence": sequence, "count": self.counts[sequence]})
        return answers


def sequences() -> Sequences:
    return Sequences()


def counter() -> Counter:
    return Counter()
