"""Needs a distribution of its own, which TorchServe installs into the model's directory."""

import importlib.metadata

import tiny_dependency


class NeedsDependency:
    def initialize(self, context):
        self.version = importlib.metadata.version("tiny-dependency")

    def handle(self, data, context):
        return [{"word": tiny_dependency.WORD, "version": self.version}] * len(data)
