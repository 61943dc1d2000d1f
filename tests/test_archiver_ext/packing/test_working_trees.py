"""Packages whose files lie in a working tree: editable installs, and what PYTHONPATH leads to."""

from __future__ import annotations

import json
import sys
import textwrap
import zipfile
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from interpool.archiver_ext import pack
from interpool.archiver_ext.packing import distributions
from interpool.archiver_ext.packing.decide.distributions import distribution_of, installs
from interpool.archiver_ext.packing.decide.rules import Rules
from interpool.native.archive.format import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test_archiver_ext.conftest import Write

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


@pytest.fixture
def fresh_metadata() -> Iterator[None]:
    """What is installed is looked up once; here more is, for a while."""

    def forget() -> None:
        distributions._providers.cache_clear()
        distribution_of.cache_clear()
        distributions._examine.cache_clear()
        distributions._recorded.cache_clear()
        distributions._modules_of.cache_clear()

    forget()
    yield
    forget()


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


def test_what_is_no_file_is_nobodys_even_in_the_projects_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trees = Rules(tmp_path).trees
    assert not any(trees.owns(Path(name)) for name in ("<string>", "_classes.py", "<torch_package_0>.m.py"))
    (tmp_path / "m.py").touch()
    assert trees.owns(Path("m.py"))
    assert trees.owns(tmp_path / "not_yet.py")


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_what_python_imports_at_its_start_is_not_the_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = tmp_path / "etc" / f"{name}.py"
    file.parent.mkdir()
    file.touch()
    started = ModuleType(name)
    started.__file__ = str(file)
    monkeypatch.setitem(sys.modules, name, started)
    assert not Rules(tmp_path / "project").trees.owns(file)


@pytest.mark.usefixtures("fresh_metadata")
def test_an_editable_install_is_the_projects_own_code(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = write(tmp_path / "tree", WORDS)
    site = editable(tmp_path / "site-packages", tree)
    monkeypatch.setenv("PYTHONPATH", f"{tree / 'src'}:{site}")
    report = pack("export:build", tmp_path / "m.ptpkg", root=project(EXPORT))
    assert {report.modules[name]["origin"] for name in ("words14", "words14.table")} == {Origin.PROJECT}
    assert [each.glob for each in report.plan.proposals] == ["cffi.**"], "nobody has to decide about it"
    assert "(words14/table.py:8: ffi = cffi.FFI())" in report.modules["cffi"]["reason"]
    assert [*report.plan.data] == ["words14/words.txt"], "beside its modules, not below the root"
    assert not {each["module"] for each in report.externs} & {"words14"}
    with zipfile.ZipFile(report.output) as file:
        assert str(tmp_path).encode() not in b"".join(map(file.read, file.namelist()))

    kept = pack("export:build", tmp_path / "m.ptpkg", root=tmp_path / "project", extern=["words14.**"])
    assert {"module": "words14", "distribution": "", "version": ""} in kept.externs


def test_a_package_below_src_finds_its_data(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(WORDS | EXPORT)
    monkeypatch.setenv("PYTHONPATH", str(root / "src"))
    report = pack("export:build", tmp_path / "m.ptpkg", root=root, data=["words14/never.py"])
    assert sorted(report.plan.data) == ["words14/never.py", "words14/words.txt"]


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
        assert {name for name in report.names("extern") if name.startswith("acme")} == {
            "acme.core",
            "acme.core.layers",
        }
        assert [each for each in report.externs if each["module"].startswith("acme")] == [
            {"module": "acme", "distribution": "acme-core", "version": "1.0"}
        ]


@pytest.mark.usefixtures("fresh_metadata")
def test_a_namespace_package_is_the_users_too_where_its_installed_part_is_found_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(write(tmp_path / "tree", {"acme14/vision/model.py": ""}))
    monkeypatch.syspath_prepend(write(tmp_path / "site-packages", {"acme14/core/__init__.py": ""}))
    rules = Rules(tmp_path / "project")
    try:
        found = {name: rules.verdict(name) for name in ("acme14", "acme14.vision.model", "acme14.core.made")}
        assert [each.origin for each in found.values()] == [Origin.PROJECT, Origin.PROJECT, Origin.RULES]
        assert found["acme14.core.made"].glob == "acme14.core.**"
        assert rules.package_of("acme14.vision.model") == ""
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "acme14"]:
            del sys.modules[name]


@pytest.mark.usefixtures("fresh_metadata")
def test_what_pip_has_put_somewhere_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``pip install --target`` does."""
    target = editable(write(tmp_path / "libs", {"words14/__init__.py": ""}), tmp_path)
    monkeypatch.syspath_prepend(target)
    assert not installs("words14", target / "words14")
    assert Rules(tmp_path / "project").verdict("words14").origin is Origin.PROJECT
    (target / "words_of_somebody-1.0.dist-info" / "RECORD").write_text("words14/__init__.py,,\n")
    distributions._recorded.cache_clear()
    assert installs("words14", target / "words14")


def test_what_was_installed_from_a_repository_is_not_the_indexs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = editable(tmp_path / "site-packages", tmp_path)
    monkeypatch.syspath_prepend(site)
    url = site / "words_of_somebody-1.0.dist-info" / "direct_url.json"
    found = []
    for said in ({"dir_info": {}}, {"vcs_info": {"vcs": "git"}}, {"archive_info": {}}, None):
        url.write_text(json.dumps(said)) if said is not None else url.unlink()
        found.append(distributions._from_index(metadata.distribution("words-of-somebody")))
    assert found == [False, False, True, True]
