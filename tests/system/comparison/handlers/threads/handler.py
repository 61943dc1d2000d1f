"""Threads, pools, event loops, context variables, weak references, and atexit, as handlers use them."""

import asyncio
import atexit
import contextvars
import functools
import pickle
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from pair import Pair

ASKED = contextvars.ContextVar("ASKED", default="nobody")


@functools.lru_cache
def square(number):
    return number * number


class Threads:
    def initialize(self, context):
        self.asked = queue.Queue()
        self.answers = queue.Queue()
        self.worker = threading.Thread(target=self.work, daemon=True)
        self.worker.start()
        self.pool = ThreadPoolExecutor(2)
        self.loop = asyncio.new_event_loop()
        self.linear = torch.nn.Linear(2, 2)
        atexit.register(print, "the end")

    def work(self):
        while True:
            self.answers.put(self.asked.get() + 1)

    async def add(self, number):
        await asyncio.sleep(0)
        return number + 100

    def handle(self, data, context):
        number = data[0]["body"]
        self.asked.put(number)
        ASKED.set(number)
        pair = pickle.loads(pickle.dumps(Pair(number, "x")))
        x = torch.ones(1, 2, requires_grad=True)
        self.linear(x).sum().backward()
        return [
            {
                "thread": self.answers.get(timeout=60),
                "pool": list(self.pool.map(square, range(4))),
                "loop": self.loop.run_until_complete(self.add(number)),
                "gather": asyncio.run(self.add(number)),
                "context": ASKED.get(),
                "pair": [pair == Pair(number, "x"), repr(pair)],
                "gradient": list(x.grad.shape),
            }
        ]
