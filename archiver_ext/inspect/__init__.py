"""Shows the contents of an archive, and the reasons for them, without running any of it.

May be imported by commands and by user programs; serving does not need it.
"""
