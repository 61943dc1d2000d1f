from __future__ import annotations

import hashlib
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_archiver_ext.building import build
from test_archiver_ext.stock import run_stock

from interpool.archiver_ext import PackReport, pack
from interpool.archiver_ext.packing.plan import Proposal
from interpool.native.archive.format import (
    MANIFEST_PACKAGE,
    MANIFEST_RESOURCE,
    Manifest,
    Origin,
    parse_manifest,
)

if TYPE_CHECKING:
    from test_archiver_ext.conftest import Write

pytestmark = pytest.mark.fresh_children

# One project with most of what torch.package would get silently wrong.
PROJECT = {
    "mypkg/__init__.py": "REGISTRY = {}",
    "mypkg/layers/__init__.py": """
        from mypkg import REGISTRY
        REGISTRY["layers"] = "registered by a parent's __init__"
    """,
    "mypkg/layers/net.py": """
        import io
        import os.path
        import sys
        import xml.sax
        import numpy as np
        import torch
        import torch.nn as nn
        import annotated_types
        from ..plain.helper import double
        from .. import REGISTRY
        from colorsys import SECRET

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 3)
                for name in "abcdef":
                    self.register_buffer(name, torch.zeros(1), persistent=False)

            def forward(self, x):
                assert os.getpid() and os.path.basename("a/b") == "b" and xml.sax
                return double(self.linear(x))

            def facts(self):
                return [REGISTRY["layers"], SECRET, type(self).__module__, sys.argv[0]]
    """,
    "mypkg/plain/helper.py": "def double(x): return 2 * x",  # no __init__.py beside it
    "colorsys.py": "SECRET = 'the project, not the standard library'",
    "mypkg/factory.py": """
        import torch
        from mypkg.layers.net import Net

        def build():
            torch.manual_seed(3)
            return Net().eval()
    """,
}

ANSWER = """
    import torch
    model = load(sys.argv[1])
    print(json.dumps([model(torch.arange(4.)).tolist(), model.facts()]))
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PackReport]:
    root = tmp_path_factory.mktemp("packed")
    for name, source in PROJECT.items():
        path = root / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = source.splitlines()
        path.write_text("\n".join(line.removeprefix(" " * 8) for line in lines), encoding="utf-8")
    return root, pack("mypkg.factory:build", root / "m.ptpkg", root=root / "src")


def manifest_of(archive: Path) -> Manifest:
    with zipfile.ZipFile(archive) as file:
        return parse_manifest(file.read(f"archive/{MANIFEST_PACKAGE}/{MANIFEST_RESOURCE}"), archive.name)


def test_an_archive_answers_as_its_source_does_without_the_source(
    packed: tuple[Path, PackReport], tmp_path: Path
) -> None:
    root, report = packed
    answer, facts = run_stock(ANSWER, report.output, cwd=tmp_path)
    from_source = """
        sys.path.insert(0, sys.argv[1])
        from mypkg.factory import build
        import torch
        print(json.dumps(build()(torch.arange(4.)).tolist()))
    """
    assert answer == run_stock(from_source, root / "src", cwd=tmp_path)
    assert facts[0] == "registered by a parent's __init__"
    assert facts[1] == "the project, not the standard library"


def test_rules_give_each_module_a_reason(packed: tuple[Path, PackReport]) -> None:
    modules = packed[1].modules
    project = {name for name, done in modules.items() if done["reason"] == "in the project"}
    assert project == {
        "mypkg", "mypkg.layers", "mypkg.layers.net", "mypkg.plain", "mypkg.plain.helper", "colorsys",
    }  # fmt: skip
    assert modules["annotated_types"]["action"] == "intern"
    assert "small and pure Python" in modules["annotated_types"]["reason"]
    for name in ("sys", "io", "os", "os.path", "xml", "xml.sax", "torch", "torch.nn", "numpy"):
        assert modules[name]["action"] == "extern"
    assert packed[1].names("mock") == []


@pytest.mark.long
def test_equal_models_give_equal_bytes_under_any_name(
    packed: tuple[Path, PackReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, report = packed
    monkeypatch.setenv("PYTHONHASHSEED", "123")
    again = pack("mypkg.factory:build", root / "other-name.bin", root=root / "src")
    assert again.output.read_bytes() == report.output.read_bytes()


def test_manifest_covers_every_member_but_itself(packed: tuple[Path, PackReport]) -> None:
    manifest = manifest_of(packed[1].output)
    with zipfile.ZipFile(packed[1].output) as file:
        found = {
            name.removeprefix("archive/"): hashlib.sha256(file.read(name)).hexdigest()
            for name in file.namelist()
        }
    del found[f"{MANIFEST_PACKAGE}/{MANIFEST_RESOURCE}"]
    assert manifest["files"] == found
    assert manifest["entry"]["kind"] == "module"
    assert {each["module"] for each in manifest["externs"]} == {
        "numpy",
        "torch",
        "typing_extensions",
    }
    assert manifest["made_with"]["torch"].startswith("2.")
    json.dumps(packed[1].as_dict())


def test_nothing_of_the_users_machine_is_in_the_archive(packed: tuple[Path, PackReport]) -> None:
    content = packed[1].output.read_bytes()
    assert str(packed[0]).encode() not in content
    assert os.fsencode(Path.home()) not in content


@pytest.mark.long
@pytest.mark.parametrize(
    "decided",
    [
        {},
        {"intern": ["mypkg.**"]},
        {"decisions": [Proposal("mypkg.**", "intern", "ours", origin=Origin.PLAN)]},
    ],
    ids=["by the rules", "by an option", "by a plan"],
)
def test_pack_warns_of_imports_that_the_archive_cannot_resolve(
    importable: Write, tmp_path: Path, decided: dict[str, Any]
) -> None:
    root = importable(
        {
            "mypkg/helper.py": "",
            "mypkg/known.py": "",
            "mypkg/factory.py": """
                import importlib, mypkg.known, os, sys

                try:
                    import guarded_and_missing
                except ImportError:
                    guarded_and_missing = None
                if sys.platform == "win32":
                    import missing_on_linux
                if "ELSEWHERE" in os.environ:
                    import missing_at_import

                def entry(x):
                    from missing_here import several, names, of_it
                    importlib.import_module("mypkg.helper")
                    importlib.import_module("mypkg.known")
                    importlib.import_module("mypkg.missing")

                def build():
                    return entry
            """,
        }
    )
    built = build("mypkg.factory:build", root, tmp_path, **decided)
    (warning,) = built.warnings
    assert warning.startswith("mypkg/factory.py:11: import missing_at_import\n")
    assert [line.splitlines()[0] for line in built.lazy] == [
        "mypkg/factory.py:14: from missing_here import several, names, of_it",
        'mypkg/factory.py:17: importlib.import_module("mypkg.missing")',
    ]
    assert built.modules["mypkg.helper"]["action"] == "intern"
    assert built.modules["mypkg.helper"]["imported_by"] == [{"module": "mypkg.factory", "line": 15}]
    assert {*built.sources} == {"mypkg", "mypkg.factory", "mypkg.helper", "mypkg.known"}


def test_the_users_code_ran_in_another_process(packed: tuple[Path, PackReport]) -> None:
    assert "mypkg.layers.net" in packed[1].names("intern")
    assert "mypkg" not in sys.modules
