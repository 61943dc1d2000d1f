"""Verifies an archive: digests, signature, externs, self-test.

May be imported by packing, inspect and commands, and by the server before it runs any code of an archive.
"""
