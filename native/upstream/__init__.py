"""What interpool relies on beyond others' public interfaces: one module for each of them.

``torch_private`` and ``cpython_private`` name what is private there and why we need it; ``requirements``
knows the versions that interpool is made for. All can be checked in one go, as ``interpool doctor``
does. May be imported by everything, in the host program and in private interpreters alike; imports
nothing of interpool, and torch only where a name of torch's is asked for.
"""
