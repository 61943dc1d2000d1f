from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Few tests that take long: started first, they do not leave one of two workers alone at the end.
SLOW = [HERE / "system", HERE / "model_store", HERE / "test_documents.py"]


@pytest.hookimpl(tryfirst=True)  # a random order, where one is asked for, comes after it
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(item.path.is_relative_to(slow) for slow in SLOW))
