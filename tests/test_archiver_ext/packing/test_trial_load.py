from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from interpool.archiver_ext.packing.trial_load import Blocker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules that are installed on this machine, behind a blocker."""
    for name in ("ours", "helper", "ours_native"):
        (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    blocker = Blocker(project=["ours", "ours_native"], installed=["helper"], extern=["ours_native.core"])
    monkeypatch.setattr(sys, "meta_path", [blocker, *sys.meta_path])
    yield
    for name in ("ours", "helper", "ours_native"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("outside")
def test_project_is_refused_to_everyone() -> None:
    with pytest.raises(ModuleNotFoundError, match="ours is in the archive"):
        importlib.import_module("ours")


@pytest.mark.usefixtures("outside")
def test_installed_module_is_refused_to_packaged_code_only() -> None:
    with pytest.raises(ModuleNotFoundError, match="helper is in the archive"):
        exec("import importlib; importlib.import_module('helper')", {"__torch_package__": True})
    importlib.import_module("helper")


@pytest.mark.usefixtures("outside")
def test_extern_and_its_parents_are_let_through() -> None:
    importlib.import_module("ours_native")
