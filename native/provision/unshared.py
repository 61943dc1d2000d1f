"""Libraries that use no Python and are private all the same: they rely on one GIL around them.

Much C code is not made for several threads at once (HDF5, MuPDF, PDFium), or keeps what extension
modules tell it in global variables. Under one Python, the GIL lets in one thread at a time; interpreters
have a GIL each.
So libraries that a wheel brings for its own extension modules are private like these. Others stay one: those
that are made for many threads and take much memory or have threads of their own.
"""

from __future__ import annotations

import os
import re

# Where auditwheel puts what a wheel's extension modules need.
_OF_A_WHEEL = ".libs"

# The same elsewhere in a wheel. LLVM (llvmlite, numba) keeps names and addresses for all that it
# compiles, and each interpreter's functions lie elsewhere. Arrow keeps types that Python defined
# (pandas.period), by name: with one table, a second interpreter would be refused, or get the first's.
_PRIVATE = re.compile(r"lib(arrow\w*|parquet|mupdf|mupdfcpp|pdfium|llvmlite)\.so.*")

# Linear algebra, threads of OpenMP, what compilers bring with them.
_SHARED = re.compile(
    r"lib(\w*openblas|blis|mkl_|gomp|omp|iomp|gfortran|quadmath|stdc\+\+|gcc_s|atomic|tbb).*"
)


def relies_on_one_gil(path: str) -> bool:
    """Whether the library at ``path`` is to be private although it need not use Python."""
    name = os.path.basename(path)
    return bool(_PRIVATE.fullmatch(name)) or (is_of_a_wheel(path) and not _SHARED.match(name))


def is_of_a_wheel(path: str) -> bool:
    """Whether the library at ``path`` is what a wheel brings for its extension modules."""
    return os.path.dirname(path).endswith(_OF_A_WHEEL)
