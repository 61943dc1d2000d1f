"""What is proposed for each package, and why: on projects that use installed packages for real."""

from __future__ import annotations

import json
import textwrap
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from click.testing import CliRunner
from test_archiver_ext.building import build, refused_build

from interpool.archiver_ext import PackReport, pack
from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.mar.opening import open_archive
from interpool.archiver_ext.packing.plan import Plan, Proposal, read_plan, write_plan
from interpool.handler.cli import main
from interpool.native.archive.format import Origin

if TYPE_CHECKING:
    from test_archiver_ext.conftest import Write

MODEL = """
    import cffi                              # imported, and never used
    import scipy.special
    import torch
    from annotated_types import Gt
    from iniconfig import IniConfig
    from mypkg.tables import table

    class Tagged(IniConfig):                 # no code of iniconfig's runs
        pass

    LIMIT = Gt(3)
    table()                                  # at import, but not at the top level of any module

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * float(scipy.special.logsumexp([1.0, LIMIT.gt])) + self.calls
"""
TABLES = """
    import sortedcontainers
    from annotated_doc import Doc

    def table():
        return {Doc: 1, sortedcontainers.SortedDict: 2}
"""
# What only loading needs.
NEEDED = ["annotated_doc.**", "sortedcontainers.**"]
FACTORY = """
    import torch
    from mypkg.model import Net

    def build():
        return Net()

    def example_inputs():
        return torch.ones(2)
"""


PROJECT = {
    "mypkg/__init__.py": "",
    "mypkg/model.py": MODEL,
    "mypkg/tables.py": TABLES,
    "mypkg/factory.py": FACTORY,
}


@pytest.fixture(scope="module")
def mypkg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    (root / "mypkg").mkdir()
    for name, text in PROJECT.items():
        (root / name).write_text(textwrap.dedent(text))
    return root


@pytest.fixture(scope="module")
def packed(mypkg: Path, tmp_path_factory: pytest.TempPathFactory) -> PackReport:
    output = tmp_path_factory.mktemp("packed") / "m.ptpkg"
    return pack("mypkg.factory:build", output, root=mypkg)


def test_packages_that_run_are_packed_or_extern_and_others_are_mocked(packed: PackReport) -> None:
    found = {each.glob: each for each in packed.plan.proposals}
    assert {glob: each.action for glob, each in found.items()} == {
        "annotated_doc.**": "intern",
        "annotated_types.**": "intern",
        "cffi.**": "mock",
        "iniconfig.**": "intern",
        "scipy.**": "extern",
        "sortedcontainers.**": "intern",
    }
    assert "it ran on the example inputs" in found["scipy.**"].reason
    assert "ships compiled code" in found["scipy.**"].reason
    assert found["scipy.**"].line == "mypkg/model.py:3: import scipy.special"
    assert "called at import (mypkg/model.py:12: LIMIT = Gt(3))" in found["annotated_types.**"].reason
    assert "what needs it will fail" in found["cffi.**"].reason
    assert found["cffi.**"].line.startswith("mypkg/model.py:2: import cffi")
    assert packed.inputs == {"args": [{"tensor": {"dtype": "float32", "shape": [2]}}], "kwargs": {}}

    assert "used at import (mypkg/model.py:9: class Tagged(IniConfig):" in found["iniconfig.**"].reason


def test_one_trial_load_finds_all_that_only_loading_needs(packed: PackReport) -> None:
    assert packed.attempts == 2
    assert packed.modules["annotated_doc"]["origin"] is Origin.RULES
    assert packed.corrections == [
        "annotated_doc is not mocked: the archive needs annotated_doc.Doc to load",
        "sortedcontainers is not mocked: the archive needs sortedcontainers.SortedDict to load",
    ]


def test_the_packed_object_has_not_been_run(packed: PackReport) -> None:
    importer = torch.package.PackageImporter(str(packed.output))
    assert importer.load_pickle("interpool-archive", "entry.pkl").calls == 0
    assert importer.load_pickle("interpool-archive", "self-test.pkl")["expected"].tolist() != [0, 0]


@pytest.mark.long
def test_a_plan_file_gives_the_same_archive_at_the_first_attempt(
    mypkg: Path, packed: PackReport, tmp_path: Path
) -> None:
    plan, archive = str(tmp_path / "plan.toml"), tmp_path / "m.ptpkg"
    command = ["mypkg.factory:build", "--root", str(mypkg)]
    planned = CliRunner().invoke(main, ["plan", *command, "-o", plan, "--json"])
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.stdout)["plan"] == json.loads(json.dumps(packed.as_dict()["plan"]))
    assert "# mypkg/model.py:2: import cffi" in Path(plan).read_text()
    done = CliRunner().invoke(main, ["pack", *command, "--plan", plan, "-o", str(archive)])
    assert done.exit_code == 0, done.output
    assert "answered its self-test" in " ".join(done.output.split())
    assert _without_plans(archive) == _without_plans(packed.output)
    assert _of_plans(archive) == {each.glob for each in packed.plan.proposals}
    assert _of_plans(packed.output) == set()


def _without_plans(archive: Path) -> dict[str, bytes]:
    """An archive's members, with a manifest that takes what a plan decided for the rules' decision."""
    with zipfile.ZipFile(archive) as file:
        members = {name: file.read(name) for name in file.namelist()}
    name = "archive/interpool-archive/manifest.json"
    members[name] = members[name].replace(b'"origin": "plan"', b'"origin": "rules"')
    return members


def _of_plans(archive: Path) -> set[str]:
    with open_archive(archive) as opened:
        modules = opened.manifest["modules"].items()
        return {f"{name.split('.')[0]}.**" for name, done in modules if done["origin"] is Origin.PLAN}


@pytest.mark.long
def test_a_plan_is_followed_as_it_is(mypkg: Path, tmp_path: Path) -> None:
    plan = Plan(
        "mypkg.factory:build",
        proposals=(Proposal("iniconfig.**", "mock", "mine"), Proposal("cffi.**", "extern", "mine")),
    )
    with pytest.raises(PackError, match=r"iniconfig\.IniConfig' was mocked out"):
        pack("mypkg.factory:build", tmp_path / "m.ptpkg", root=mypkg, plan=plan, extern=NEEDED)


@pytest.mark.long
def test_options_win_over_a_plan(importable: Write, tmp_path: Path) -> None:
    decisions = [
        Proposal("iniconfig.**", "mock", "mine", origin=Origin.PLAN),
        Proposal("cffi.**", "extern", "mine", origin=Origin.PLAN),
    ]
    extern = ["iniconfig.**", *NEEDED]
    root = importable(PROJECT)
    modules = build("mypkg.factory:build", root, tmp_path, decisions=decisions, extern=extern).modules
    assert modules["iniconfig"]["reason"] == "--extern iniconfig.**"
    assert modules["iniconfig"]["origin"] is Origin.USER
    assert (modules["cffi"]["action"], modules["cffi"]["reason"]) == ("extern", "mine")
    assert modules["cffi"]["origin"] is Origin.PLAN


def test_the_plan_of_another_model_is_refused(mypkg: Path, tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"the plan was made for mypkg\.other:build"):
        pack("mypkg.factory:build", tmp_path / "m.ptpkg", root=mypkg, plan=Plan("mypkg.other:build"))


@pytest.mark.long
def test_an_answer_that_is_another_in_a_fresh_process_is_refused(project: Write, tmp_path: Path) -> None:
    root = project(
        {
            "m.py": """
                import os, torch

                def entry(x):
                    return x + os.getpid()

                def build():
                    return entry

                def example_inputs():
                    return torch.zeros(1, dtype=torch.int64)
            """
        }
    )
    with pytest.raises(PackError, match="answers its example inputs differently in a fresh process: answer:"):
        pack("m:build", tmp_path / "m.ptpkg", root=root)
    assert list(tmp_path.glob("*.ptpkg")) == []


def test_a_model_that_raises_on_its_inputs_is_refused_with_the_users_line(
    importable: Write, tmp_path: Path
) -> None:
    source = """
        def entry(x):
            return x["missing"]

        def build():
            return entry

        def example_inputs():
            return ({},)
    """
    error = refused_build("m:build", importable({"m.py": source}), tmp_path, inputs="")
    assert str(error).startswith('m.py:3: return x["missing"]\n  m:build raised on its example inputs')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = ", "not TOML"),
        ("schema = 9\nspec = 'a:b'", "schema is 9"),
        ("schema = 1\nspec = 3", "must be texts"),
        ("schema = 1\nspec = 'a:b'\nextra = 1", "unknown key 'extra'"),
        ("schema = 1\nspec = 'a:b'\nmock = 1", r"\[mock\] must be a table"),
        ("schema = 1\nspec = 'a:b'\n[mock]\nscipy.x = 'why'", "a glob with dots"),
        ("schema = 1\nspec = 'a:b'\n[mock]\n'a**' = 'why'", "must stand alone"),
        ("schema = 1\nspec = 'a:b'\n[extern]\n'a.**' = 'x'\n[mock]\n'a.**' = 'y'", "leave it in one"),
    ],
)
def test_a_bad_plan_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(PackError, match=message):
        read_plan(tmp_path / "plan.toml")


def test_a_plan_replaces_a_plan_and_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    for spec in ("m:build", "m:other"):
        write_plan(Plan(spec), path)
        assert read_plan(path).spec == spec
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    write_plan(Plan("m:third"), link)
    assert link.is_symlink()
    assert read_plan(path).spec == "m:third"
    project = tmp_path / "pyproject.toml"
    project.write_text("[project]\nname = 'm'\n")
    with pytest.raises(PackError, match="would replace it, and it is no plan"):
        write_plan(Plan("m:build"), project)
    assert project.read_text() == "[project]\nname = 'm'\n"
    assert sorted(tmp_path.iterdir()) == [link, path, project]


@pytest.mark.parametrize("output", ["missing/plan.toml", "pyproject.toml"])
def test_a_place_that_can_have_no_plan_is_refused_before_the_model_is_built(
    tmp_path: Path, output: str
) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]")
    result = CliRunner().invoke(main, ["plan", "not.a.module:build", "-o", str(tmp_path / output)])
    assert result.exit_code == 4
    assert "the plan cannot be written" in result.output or "it is no plan" in result.output


@pytest.mark.long
def test_an_archive_without_code_says_so(importable: Write, tmp_path: Path) -> None:
    root = importable({"m.py": "import torch\ndef build(): return torch.nn.Linear(2, 2)"})
    (warning,) = build("m:build", root, tmp_path).warnings
    assert warning == "the archive contains no code: the model runs the server's versions of torch"
