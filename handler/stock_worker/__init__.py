"""Hermetic models on a server without the overlay: TorchServe's own worker, with a pool of its own.

Nothing imports it but TorchServe's loader, through the handler file in a .mar, and the ``interpool``
command, which names that file.
"""
