"""What interpool relies on beyond others' public interfaces.

``torch_private`` and ``cpython_private`` name what is private there and why we need it, and
``torch_symbols`` asks for what C++ needs; ``requirements`` knows the versions that interpool is made for.
``interpool doctor`` checks all of it.

May be imported by everything, in the host program and in private interpreters alike. Imports nothing of
interpool outside of this package, and torch only where one of torch's names is asked for.
"""
