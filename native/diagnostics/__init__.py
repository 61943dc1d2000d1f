"""Is this machine, and are these modules, able to run in private interpreters?

May be imported by commands and by handler's own checks. It stands at the top of native: it looks at
what provision found, and its trials start pools.
"""
