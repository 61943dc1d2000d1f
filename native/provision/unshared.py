"""Finds libraries that do not use Python but rely on one GIL, so that they must be private.

Much C code is not thread-safe (HDF5, MuPDF, PDFium), or stores data of extension modules in global variables.
In one Python, the GIL admits one thread at a time, but each interpreter has its own GIL. So libraries in a
wheel are private like the extension modules that use them. Libraries that are thread-safe, and use much
memory or their own threads, stay shared.
"""

from __future__ import annotations

import os
import re

# The suffix of auditwheel's folder for dependencies of a wheel's extension modules.
_OF_A_WHEEL = ".libs"

# Such libraries in other folders. LLVM (llvmlite, numba) keeps names and addresses of all code that it
# compiles, which differ between interpreters. Arrow keeps Python-defined types (pandas.period) by name: in a
# shared table, the second interpreter would fail or get the first's.
_PRIVATE = re.compile(r"lib(arrow\w*|parquet|mupdf|mupdfcpp|pdfium|llvmlite)\.so.*")

# Linear algebra, OpenMP, compilers' runtime libraries.
_SHARED = re.compile(
    r"lib(\w*openblas|blis|mkl_|gomp|omp|iomp|gfortran|quadmath|stdc\+\+|gcc_s|atomic|tbb).*"
)


def relies_on_one_gil(path: str) -> bool:
    """Return whether the library at ``path`` must be private although it does not use Python."""
    name = os.path.basename(path)
    return bool(_PRIVATE.fullmatch(name)) or (is_of_a_wheel(path) and not _SHARED.match(name))


def is_of_a_wheel(path: str) -> bool:
    """Return whether the library at ``path`` is in a wheel's folder of dependencies."""
    return os.path.dirname(path).endswith(_OF_A_WHEEL)
