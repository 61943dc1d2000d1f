"""The private interfaces of other projects that interpool uses.

``torch_private`` and ``cpython_private`` list private names and their purpose; ``torch_symbols`` checks
symbols for C++; ``requirements`` knows the supported versions. ``interpool doctor`` checks all of them.

May be imported by everything, in the host program and in private interpreters. Imports nothing of interpool
outside of this package, and torch only if one of torch's names is used.
"""
