"""Which of interpool's own libraries a torch gets: those that were compiled for its minor version."""

from __future__ import annotations

from pathlib import Path

import pytest

from interpool.native.errors import ProvisioningError
from interpool.native.provision.torch_parts import torch_part


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("INTERPOOL_UNTESTED", raising=False)
    for minor in ("2.9", "2.13", "2.15"):
        (tmp_path / f"torch-{minor}").mkdir()
    return tmp_path


@pytest.mark.parametrize("torch", ["2.13.1+cpu", "2.13.0a0+git1234"])
def test_every_release_of_a_minor_version_gets_its_own(libraries: Path, torch: str) -> None:
    assert torch_part(libraries, torch).name == "torch-2.13"


def test_another_minor_version_is_refused_with_those_that_there_are(libraries: Path) -> None:
    with pytest.raises(ProvisioningError) as refused:
        torch_part(libraries, "2.14.0")
    assert "built for torch 2.9 and 2.13 and 2.15, and torch 2.14.0 is installed" in str(refused.value)
    assert "INTERPOOL_UNTESTED=1" in refused.value.hint


@pytest.mark.parametrize(("torch", "nearest"), [("2.14.0", "2.13"), ("3.0.0", "2.15"), ("2.8.1", "2.9")])
def test_the_variable_for_untested_versions_takes_the_one_before(
    libraries: Path, monkeypatch: pytest.MonkeyPatch, torch: str, nearest: str
) -> None:
    monkeypatch.setenv("INTERPOOL_UNTESTED", "1")
    assert torch_part(libraries, torch).name == f"torch-{nearest}"


def test_an_installation_without_any_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ProvisioningError, match="Install interpool again"):
        torch_part(tmp_path, "2.13.0")
