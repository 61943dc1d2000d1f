from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# Models in these tests set them, or remove them.
_CHANGED = ("LEFT_BY", "PATH", "PYTHONPATH", "TMPDIR", "http_proxy")


@pytest.fixture(autouse=True)
def _environment_of_the_c_library() -> Iterator[None]:
    """Restores what models have written there: it is the process's, and that of each process it starts."""
    yield
    for name in _CHANGED:
        if name in os.environ:
            os.putenv(name, os.environ[name])
        else:
            os.unsetenv(name)
