"""What a program sees of ``interpool``: its names, and nothing else."""

from __future__ import annotations

import importlib.metadata

import pytest

import interpool
import interpool.archiver_ext
import interpool.native


def test_the_package_lists_its_public_names_and_its_version() -> None:
    assert dir(interpool) == sorted([*interpool.__all__, "__version__"])
    assert interpool.__version__ == importlib.metadata.version("interpool")


@pytest.mark.parametrize("package", [interpool, interpool.native, interpool.archiver_ext])
def test_every_name_that_a_package_lists_is_there(package: object) -> None:
    for name in dir(package):
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        package.nothing_of_that_name  # type: ignore[attr-defined]  # noqa: B018
