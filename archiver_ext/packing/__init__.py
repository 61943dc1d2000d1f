"""Packs the object of a SPEC into a hermetic archive: plan, build, trial load.

May be imported by commands and by user programs; serving does not need it.
"""
