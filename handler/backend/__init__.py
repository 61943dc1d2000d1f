"""What answers a request, inside a private interpreter.

May be imported by stock_worker. It runs TorchServe's own backend code, and the model.
"""
