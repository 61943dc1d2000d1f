"""Checks whether this machine, and modules, can run in private interpreters.

May be imported by commands and by handler's own checks. It is the top layer of native: it inspects private
copies, and its trials start pools.
"""
