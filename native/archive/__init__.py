"""The one reader of hermetic archives: zip structure, manifest, digests, unpickling, imports, data files.

May be imported by everything above it (pool, inside, archiver_ext, handler), in the host program and in
private interpreters alike. It imports ``native.errors`` and nothing else of interpool.
"""
