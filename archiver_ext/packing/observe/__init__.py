"""Observes the model's code while it is built and run: calls, files, imports."""
