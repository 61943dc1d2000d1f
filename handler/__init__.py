"""Serving: what TorchServe meets, and the ``interpool`` command.

Each of these imports those before it, and no other, not even inside a function:

- ``errors``: the errors of the serving side, and their HTTP statuses;
- ``torchserve``: what is TorchServe's and our code relies on;
- ``frontend``: the overlay, and the shim that TorchServe starts for each worker;
- ``config``: settings;
- ``signature_policy``: what an archive must prove;
- ``worker_token``: what the host sends to an interpreter about a worker;
- ``failed_load``: what they say to each other of a load that failed;
- ``host``: the pool host, a process without torch;
- ``backend``: what answers inside an interpreter; neither of these two imports the other, and the host
  knows the backend by name only;
- ``stock_worker``: hermetic models on a server without the overlay;
- ``model``, ``interpool_handler``: what a .mar's handler file imports, and that file;
- ``cli``: the command.
"""
