"""Remembers; reads on in files that it opened when it was initialized."""

import itertools


class Counter:
    def initialize(self, context):
        self.count = 0
        self.lines = itertools.cycle(open("lines.txt"))  # noqa: SIM115 - read on from, call by call
        self.numbers = (number * number for number in itertools.count())

    def handle(self, data, context):
        self.count += 1
        return [{"count": self.count, "line": next(self.lines).strip(), "number": next(self.numbers)}]
