"""A pool that serves HTTP by itself, without TorchServe: archives, the host in a thread, the application.

May be imported by the ``interpool`` command and by ``interpool.asgi``.
"""
