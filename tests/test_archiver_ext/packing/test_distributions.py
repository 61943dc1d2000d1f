"""What an installed distribution needs, as its metadata says."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

import pytest

from interpool.archiver_ext.packing.decide.distributions import requirements

_METADATA = {
    "model-kit": ["Tensor_Tools[fast]>=1", "winonly; sys_platform == 'win32'", "plots; extra == 'plot'"],
    "tensor-tools": ["deep.one", "speedups; extra == 'fast'", "slow; extra == 'slow'"],
    "deep-one": ["model-kit", "here; python_version >= '3'"],
    "speedups": ["not a requirement at all ==="],
    "legacy": ["first>=1", "old>=1.0.*", "last"],
}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def requires(name: str) -> list[str]:
        if name not in _METADATA:
            raise metadata.PackageNotFoundError(name)
        return _METADATA[name]

    monkeypatch.setattr(metadata, "requires", requires)
    requirements.cache_clear()
    yield
    requirements.cache_clear()


def test_markers_and_extras_decide_what_is_needed() -> None:
    assert requirements("Model.Kit") == {"tensor-tools", "deep-one", "speedups", "here", "model-kit"}


def test_one_requirement_that_cannot_be_read_leaves_the_others() -> None:
    assert requirements("legacy") == {"first", "last"}


def test_a_package_that_is_not_installed_needs_no_others() -> None:
    assert requirements("nowhere") == set()
