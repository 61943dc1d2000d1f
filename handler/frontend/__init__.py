"""What TorchServe's frontend meets: the overlay, and the shim that it starts for each worker.

May be imported by all of handler. The shim itself imports the standard library only.
"""
