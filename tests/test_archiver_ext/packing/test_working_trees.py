"""Packages whose files lie in a working tree: editable installs, and what PYTHONPATH leads to."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import setuptools
from test_archiver_ext.building import build

from interpool.archiver_ext import PackError, pack
from interpool.native.archive.format import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test_archiver_ext.conftest import Write

pytestmark = pytest.mark.long

WORDS = {
    "src/words14/__init__.py": "",
    # Rules for other people's packages would keep one like this outside.
    "src/words14/table.py": """
        import sys
        from pathlib import Path

        import cffi

        sys.modules[__name__]
        ffi = cffi.FFI()

        def register(function):
            return function

        @register
        def table():
            return Path(__file__).with_name("words.txt").read_text().split()
    """,
    "src/words14/words.txt": "a b c",
    "src/words14/never.py": "",
}
EXPORT = {
    "export.py": """
        import torch
        from words14.table import table

        class Net(torch.nn.Module):
            def forward(self, x):
                return x + len(table())

        def build():
            return Net()

        def example_inputs():
            return torch.ones(2)
    """
}

# The project's part of a namespace package, in which others have theirs.
ACME = {
    "acme/vision/model.py": """
        import acme.core.layers
        import torch
        from acme.basics import SCALE

        class Net(torch.nn.Module):
            def forward(self, x):
                return acme.core.layers.double(x) * SCALE * len(acme.core.NAMES)

        def build():
            return Net()

        def example_inputs():
            return torch.ones(2)
    """
}
ACME_CORE = {
    "acme/core/__init__.py": "from acme.core.registry import NAMES",
    "acme/core/registry.py": "NAMES = ['double']",
    "acme/core/layers.py": "def double(x): return x * 2",
    "acme/core/_fast.so": "",
}
ACME_BASICS = {"acme/basics/__init__.py": "SCALE = 3"}


@pytest.fixture(autouse=True)
def forgotten_modules() -> Iterator[None]:
    """What this process imports of a working tree."""
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("words14", "acme")]:
        del sys.modules[name]


def editable(folder: Path, tree: Path) -> Path:
    """What ``pip install -e`` leaves where it installs, but for the .pth file."""
    info = folder / "words_of_somebody-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: words-of-somebody\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("words14\n")
    (info / "RECORD").write_text("__editable__.words_of_somebody-1.0.pth,,\n")
    url = {"url": tree.as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(url))
    return folder


def installed(site: Path, name: str, files: dict[str, str]) -> Path:
    """What ``pip install`` leaves of a part of the package acme."""
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    metadata_files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/top_level.txt": "acme\n",
        f"{info}/RECORD": "".join(f"{file},,\n" for file in files),
    }
    return write(site, files | metadata_files)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, source in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source), encoding="utf-8")
    return root


@pytest.mark.usefixtures("fresh_metadata")
def test_an_editable_install_is_the_projects_own_code(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = write(tmp_path / "tree", WORDS)
    site = editable(tmp_path / "site-packages", tree)
    monkeypatch.setenv("PYTHONPATH", f"{tree / 'src'}:{site}")
    report = pack("export:build", tmp_path / "m.ptpkg", root=project(EXPORT))
    assert {report.modules[name]["origin"] for name in ("words14", "words14.table")} == {Origin.PROJECT}
    assert [each.glob for each in report.plan.proposals] == ["cffi.**"], "the user need not decide about it"
    assert "(words14/table.py:8: ffi = cffi.FFI())" in report.modules["cffi"]["reason"]
    assert [*report.plan.data] == ["words14/words.txt"], "beside its modules, not below the root"
    assert not {each["module"] for each in report.externs} & {"words14"}
    with zipfile.ZipFile(report.output) as file:
        assert str(tmp_path).encode() not in b"".join(map(file.read, file.namelist()))


@pytest.mark.usefixtures("fresh_metadata")
def test_a_working_tree_may_be_taken_from_the_server(
    importable: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = write(tmp_path / "tree", WORDS)
    for folder in (tree / "src", editable(tmp_path / "site-packages", tree)):
        monkeypatch.syspath_prepend(folder)
    root = importable(EXPORT)
    externs = build("export:build", root, tmp_path, extern=["words14.**"]).externs
    assert {"module": "words14", "distribution": "", "version": ""} in externs


def test_a_package_below_src_finds_its_data(
    importable: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = importable(WORDS | EXPORT)
    monkeypatch.syspath_prepend(root / "src")
    built = build("export:build", root, tmp_path, inputs="", data=["words14/never.py"])
    assert sorted(built.data) == ["words14/never.py", "words14/words.txt"]


def test_a_module_that_no_import_of_the_archive_names_is_missed(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(
        {
            "src/words14/__init__.py": "",
            "src/words14/table.py": """
                import pydoc

                def table():
                    return pydoc.locate("forgotten14.table")()
            """,
            "src/forgotten14.py": "def table(): return [1]",
        }
        | EXPORT
    )
    monkeypatch.setenv("PYTHONPATH", str(root / "src"))
    with pytest.raises(PackError) as caught:
        pack("export:build", tmp_path / "m.ptpkg", root=root)
    assert caught.value.message.startswith("src/words14/table.py:5: return pydoc.locate(")
    assert "Imported here and not in the archive: forgotten14." in caught.value.message


VERSIONED = {
    "export.py": """
        import torch
        from acme import SCALE

        class Net(torch.nn.Module):
            def forward(self, x):
                return x * SCALE

        def build():
            return Net()

        def example_inputs():
            return torch.ones(2)
    """
}
ACME_ALONE = {
    "acme/__init__.py": "from importlib.metadata import version; SCALE = float(version('acme-alone'))\n"
}


@pytest.mark.parametrize("reader", ["importlib.metadata", "importlib_metadata"])
@pytest.mark.usefixtures("fresh_metadata")
def test_a_package_that_reads_its_own_metadata_is_taken_from_the_server(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    files = {name: source.replace("importlib.metadata", reader) for name, source in ACME_ALONE.items()}
    site = installed(tmp_path / "site-packages", "acme-alone", files)
    for part in Path(str(setuptools.__file__)).with_name("_vendor").glob("importlib_metadata*"):
        shutil.copytree(part, site / part.name)
    monkeypatch.setenv("PYTHONPATH", str(site))
    report = pack("export:build", tmp_path / "m.ptpkg", root=project(VERSIONED))
    assert report.modules["acme"]["action"] == "extern"
    assert "acme is taken from the server" in report.corrections[-1]
    assert "(PackageNotFoundError)" in report.corrections[-1]
    assert not any("importlib_metadata is taken" in each for each in report.corrections)


@pytest.mark.usefixtures("fresh_metadata")
def test_code_of_the_project_that_reads_its_own_metadata_is_refused_with_advice(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = installed(tmp_path / "site-packages", "acme-alone", {}) / "acme_alone-1.0.dist-info"
    root = project({f"src/{name}": source for name, source in ACME_ALONE.items()} | VERSIONED)
    url = {"url": root.as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(url))
    (info / "top_level.txt").unlink()  # not all tools write it
    monkeypatch.setenv("PYTHONPATH", f"{root / 'src'}:{info.parent}")
    with pytest.raises(PackError) as caught:
        pack("export:build", tmp_path / "m.ptpkg", root=root)
    assert "PackageNotFoundError: No package metadata was found for acme-alone" in caught.value.message
    assert (
        "What to do: catch PackageNotFoundError, or write the version into the code" in caught.value.message
    )


@pytest.mark.usefixtures("fresh_metadata")
def test_a_decision_about_a_part_of_a_namespace_package_leaves_the_projects_part_alone(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = installed(tmp_path / "site-packages", "acme-core", ACME_CORE)
    installed(site, "acme-basics", ACME_BASICS)
    monkeypatch.setenv("PYTHONPATH", str(site))
    root = project(ACME)
    proposed = pack("acme.vision.model:build", tmp_path / "m.ptpkg", root=root)
    assert proposed.attempts == 1
    assert {each.glob: each.action for each in proposed.plan.proposals} == {
        "acme.basics.**": "intern",
        "acme.core.**": "extern",
    }
    planned = pack("acme.vision.model:build", tmp_path / "m.ptpkg", root=root, plan=proposed.plan)
    for report in (proposed, planned):
        for name in ("acme", "acme.vision", "acme.vision.model"):
            assert report.modules[name]["action"] == "intern"
            assert report.modules[name]["origin"] == Origin.PROJECT
        taken = {name for name, done in report.modules.items() if done["action"] == "extern"}
        assert {name for name in taken if name.startswith("acme")} == {"acme.core", "acme.core.layers"}
        assert [each for each in report.externs if each["module"].startswith("acme")] == [
            {"module": "acme", "distribution": "acme-core", "version": "1.0"}
        ]
