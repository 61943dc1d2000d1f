"""The direct address: an ASGI application that answers HTTP from a pool, as TorchServe's frontend does.

To the pool's host it is one more frontend. For each worker of a model it opens a connection to the host,
and speaks TorchServe's worker protocol on it. So all that a call meets behind that is the same.

May be imported by the host and by ``handler.run``. It imports no HTTP server or client until it is asked to
serve: these come with ``interpool[direct]``.
"""
