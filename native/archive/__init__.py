"""The one reader of hermetic archives: zip structure, manifest, digests, unpickling, imports, data files.

May be imported by everything above it (pool, inside, archiver_ext, handler), in the host program and in
private interpreters alike. Of interpool it imports nothing but ``native.errors`` and ``native.upstream``.
"""
