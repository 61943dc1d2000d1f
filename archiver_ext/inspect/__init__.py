"""What is in an archive, and why, without running any of it.

May be imported by commands and by user programs; nothing that serves needs it.
"""
