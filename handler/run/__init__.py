"""A pool that serves HTTP by itself, without TorchServe: archives, the host in a thread, the application.

The ``interpool`` command and ``interpool.asgi`` may import it.
"""
