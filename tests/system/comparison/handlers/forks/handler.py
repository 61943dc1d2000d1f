"""Works in child processes that it forks."""

import multiprocessing


def _square(number):
    return number * number


class Forks:
    def initialize(self, context):
        self.context = multiprocessing.get_context("fork")

    def handle(self, data, context):
        with self.context.Pool(1) as pool:
            return [pool.map(_square, [1, 2, 3])]
