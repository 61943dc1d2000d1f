"""The pool host: the one process that serves every hermetic model of one TorchServe.

The ``interpool`` command may import it. It names the code that answers inside the interpreters
(``handler.backend``), and does not import that. So the process stays small, without torch.
"""
