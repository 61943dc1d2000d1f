"""From a SPEC to a hermetic archive: plan, build, trial load.

May be imported by commands and by user programs; nothing that serves needs it.
"""
