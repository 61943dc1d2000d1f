"""Takes the thread that calls it for Python's main thread, as it is in a stock worker."""

import asyncio
import threading


class MainThread:
    def initialize(self, context):
        self.queue = asyncio.Queue()

    def handle(self, data, context):
        loop = asyncio.get_event_loop()
        loop.run_until_complete(self.queue.put(1))
        return [
            {
                "queued": loop.run_until_complete(self.queue.get()),
                "main": threading.current_thread() is threading.main_thread(),
            }
        ]
