"""Sources as they come out of an archive."""

from __future__ import annotations

import importlib
import zipfile
from typing import TYPE_CHECKING

import pytest
import torch
from torch.package import PackageImporter

from interpool.archiver_ext.packing.decide.rules import Rules
from interpool.archiver_ext.packing.write.exporter import HermeticExporter

if TYPE_CHECKING:
    from pathlib import Path

    from test_archiver_ext.conftest import Write


@pytest.mark.parametrize(
    "head",
    [
        "# -*- coding: latin-1 -*-\n",
        "#!/usr/bin/python\n# vim: set fileencoding=latin-1 :\n",
        "# -*- coding: latin-1 -*-\n# vim: set fileencoding=latin-1 :\n",
    ],
)
def test_a_source_in_another_encoding_says_the_same_in_the_archive(
    importable: Write, tmp_path: Path, head: str
) -> None:
    root = importable({"mypkg/__init__.py": ""})
    (root / "mypkg" / "names.py").write_bytes(f"{head}NAME = 'gr\xf6\xdfe'\n".encode("latin-1"))
    exporter = HermeticExporter(tmp_path / "archive.ptpkg", Rules(root))
    exporter.add_dependency("mypkg.names")
    exporter.close()
    found = PackageImporter(tmp_path / "archive.ptpkg").import_module("mypkg.names")
    assert found.NAME == "gr\xf6\xdfe"


def test_a_class_whose_objects_pack_themselves_is_pickled_by_its_name(
    importable: Write, tmp_path: Path
) -> None:
    exporter = HermeticExporter(tmp_path / "archive.ptpkg", Rules(importable({"mypkg/__init__.py": ""})))
    exporter.save_pickle("model", "model.pkl", torch.fx.GraphModule)
    exporter.close()
    found = PackageImporter(tmp_path / "archive.ptpkg").load_pickle("model", "model.pkl")
    assert found is torch.fx.GraphModule


def test_an_object_that_answers_to_any_name_is_pickled_as_pickle_does(
    importable: Write, tmp_path: Path
) -> None:
    root = importable(
        {
            "mypkg/__init__.py": "",
            "mypkg/config.py": """
                class Config(dict):
                    __getattr__ = dict.get
                    __setattr__ = dict.__setitem__

                class Strict(dict):
                    def __getattr__(self, name):
                        return self[name]

                class Silent:
                    def __getattr__(self, name):
                        if name.startswith("__") and name != "__reduce_package__":
                            raise AttributeError(name)
                        return lambda *args: None
            """,
        }
    )
    from mypkg.config import Config, Silent, Strict  # type: ignore[import-not-found]

    made = {"config": Config(width=3, inner=Config(a=1)), "strict": Strict(depth=2), "silent": Silent()}
    exporter = HermeticExporter(tmp_path / "archive.ptpkg", Rules(root))
    exporter.save_pickle("model", "model.pkl", made)
    exporter.close()
    found = PackageImporter(tmp_path / "archive.ptpkg").load_pickle("model", "model.pkl")
    assert (found["config"].width, found["config"].inner.a, found["config"].scale) == (3, 1, None)
    assert found["strict"].depth == 2
    assert found["silent"].log_metric("x", 1) is None


def test_only_the_sources_of_torchscript_have_paths_of_this_machine(
    importable: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = importable(
        {
            "mypkg/__init__.py": "",
            "mypkg/net.py": """
                import torch

                class Net(torch.nn.Module):
                    def forward(self, x):
                        return x + 1
            """,
        }
    )
    net = importlib.import_module("mypkg.net")
    monkeypatch.setattr("torch.package.package_exporter._gate_torchscript_serialization", False)
    exporter = HermeticExporter(tmp_path / "archive.ptpkg", Rules(root))
    exporter.save_pickle("model", "model.pkl", [net.Net(), torch.jit.script(net.Net())])
    exporter.close()
    with zipfile.ZipFile(tmp_path / "archive.ptpkg") as file:
        found = [name for name in file.namelist() if str(root).encode() in file.read(name)]
    assert found
    assert all(name.startswith("archive/.data/ts_code/") for name in found)
