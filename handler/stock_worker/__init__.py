"""Hermetic models on a server without the overlay: TorchServe's own worker, with a pool of its own.

May be imported by ``handler.model`` only, through which the handler file in a .mar reaches it.
"""
