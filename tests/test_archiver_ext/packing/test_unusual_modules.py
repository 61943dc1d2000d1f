"""Modules that change the process that imports them, or come from unusual places."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from interpool.archiver_ext import pack
from interpool.archiver_ext.verify.verification import verify_archive

if TYPE_CHECKING:
    from pathlib import Path

    from test_archiver_ext.conftest import Write

    from interpool.archiver_ext.packing.reports import PackReport

pytestmark = pytest.mark.long

MODEL = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return self.scale * x

    def example_inputs():
        return torch.ones(1, 2)
"""


def packed(head: str, project: Write, tmp_path: Path, **files: str) -> PackReport:
    """A model in a module with these first lines."""
    root = project({"mypkg/__init__.py": "", "mypkg/m.py": f"{head}{MODEL}", **files})
    return pack("mypkg.m:Net", tmp_path / "m.ptpkg", root=root)


def test_a_module_may_turn_warnings_into_errors(project: Write, tmp_path: Path) -> None:
    report = packed("\n    import warnings; warnings.simplefilter('error', UserWarning)", project, tmp_path)
    assert report.attempts == 1
    verify_archive(report.output)


def test_a_module_may_come_from_a_zip_file_of_the_project(project: Write, tmp_path: Path) -> None:
    vendor = project({"mypkg/__init__.py": ""}) / "mypkg" / "vendor.zip"
    with zipfile.ZipFile(vendor, "w") as file:
        file.writestr("zipped_module.py", "ONE = 1")
    head = """
    import sys
    from pathlib import Path
    sys.path.insert(0, str(Path(__file__).with_name("vendor.zip")))
    from zipped_module import ONE
    """
    report = packed(head, project, tmp_path)
    assert "zipped_module" in report.names("intern")


def test_a_star_imports_the_submodules_that_all_names(project: Write, tmp_path: Path) -> None:
    layers = {
        "mypkg/layers/__init__.py": "__all__ = ['lin', 'ONE']\nONE = 1",
        "mypkg/layers/lin.py": "TWO = 2",
    }
    report = packed("\n    from mypkg.layers import *; lin.TWO", project, tmp_path, **layers)
    assert report.modules["mypkg.layers.lin"]["imported_by"] == [{"module": "mypkg.m", "line": 2}]
