"""The pool host: the one process that serves every hermetic model of one TorchServe.

May be imported by the ``interpool`` command. It names what answers inside the interpreters
(``handler.backend``) and does not import it: the process stays small, without torch.
"""
