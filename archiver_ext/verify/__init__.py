"""Whether an archive is what it says: digests, signature, externs, self-test.

May be imported by packing, inspect and commands, and by the server before it runs anything of an archive.
"""
