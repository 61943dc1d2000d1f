from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_channels import FakeHost


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHost]:
    """A host with which the direct address's workers are registered."""
    with FakeHost() as taking:
        monkeypatch.setattr("interpool.handler.direct.supervision.register", taking.register)
        yield taking
