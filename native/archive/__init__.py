"""The only reader of hermetic archives: zip structure, manifest, digests, unpickling, imports, data files.

The pool, ``inside``, ``archiver_ext`` and ``handler`` may import it, in the host program and in private
interpreters. Within interpool it imports only ``native.errors`` and ``native.upstream``.
"""
