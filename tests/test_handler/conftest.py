from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from interpool_testing import Code, pool_of

from interpool.native import InterpreterManager

with warnings.catch_warnings():
    # TorchServe leaves its version file open when it is imported.
    warnings.simplefilter("ignore", ResourceWarning)
    import ts  # noqa: F401


# One interpreter of the file's own: what its tests change there stays changed.
manager = pool_of(1)


@pytest.fixture(scope="module")
def code(manager: InterpreterManager, request: pytest.FixtureRequest) -> Iterator[Code]:
    """The file's source ``INSIDE``, run in that interpreter."""
    with manager.acquire_session() as session:
        yield Code(session, request.module.INSIDE)
