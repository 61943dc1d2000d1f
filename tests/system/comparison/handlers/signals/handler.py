"""A signal handler, as those have who want to end well."""

import signal


class Signals:
    def initialize(self, context):
        self.before = signal.signal(signal.SIGUSR2, lambda *_: None)

    def handle(self, data, context):
        return ["ready"] * len(data)
