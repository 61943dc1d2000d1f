"""The direct address: an ASGI application that answers HTTP from a pool, as TorchServe's frontend does.

To the pool's host it is one more frontend. For each worker of a model it opens a connection to the host,
and speaks TorchServe's worker protocol on it. So a call runs in the pool exactly as one from TorchServe.

The host and ``handler.run`` may import it. It imports no HTTP server or client until it serves: these come
with ``interpool[direct]``.
"""
