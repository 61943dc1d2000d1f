from __future__ import annotations

from collections.abc import Iterator

import pytest
from system.comparison.servers import Pair, pair


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    """TorchServe without interpool and with it, for a module's tests."""
    with pair({"GIVEN_TO_SERVER": "yes"}, {"install_py_dep_per_model": "true"}) as running:
        yield running
