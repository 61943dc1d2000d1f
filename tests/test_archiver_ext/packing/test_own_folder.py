"""Code that looks into its own folder: to list modules, to find data, to see whether data is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from test_archiver_ext.building import refused_build

from interpool.archiver_ext import PackError, pack
from interpool.archiver_ext.packing.decide.project_data import find_data
from interpool.archiver_ext.packing.plan import read_plan
from interpool.handler.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from test_archiver_ext.conftest import Write

pytestmark = pytest.mark.long

MODEL = """
    import torch
    from suite import models, names

    class Net(torch.nn.Module):
        def forward(self, x):
            return x * names()[0]

    def build():
        return Net()

    def example_inputs():
        return torch.ones(2)
"""
SUITE = {
    "suite/__init__.py": """
        import importlib
        import os
        from pathlib import Path

        models = {}
        for entry in sorted(Path(__file__).parent.iterdir()):
            if (entry / "__init__.py").exists():
                models[entry.name] = importlib.import_module(f".{entry.name}", __name__).NUMBER

        here = os.path.dirname(__file__)
        for name in sorted(os.listdir(os.path.join(here, "plain"))):
            if name.endswith(".py"):
                stem = os.path.splitext(name)[0]
                models[stem] = __import__("suite.plain." + stem, fromlist=["NUMBER"]).NUMBER

        def names():
            return [sum(models.values()), *models]
    """,
    "suite/first/__init__.py": "NUMBER = 1",
    "suite/second/__init__.py": "from suite.second.helper import NUMBER",
    "suite/second/helper.py": "NUMBER = 10",
    "suite/plain/third.py": "NUMBER = 100",  # no __init__.py beside it
    "suite/never.py": "raise RuntimeError('no code imports this')",
    "export.py": MODEL,
}


def test_a_package_that_lists_its_own_folder_and_imports_what_it_finds_is_packed_whole(
    project: Write, tmp_path: Path
) -> None:
    report = pack("export:build", tmp_path / "m.ptpkg", root=project(SUITE))
    assert report.attempts == 1
    assert {name for name in report.names("intern") if name.startswith("suite.")} == {
        "suite.first", "suite.plain", "suite.plain.third", "suite.second", "suite.second.helper",
    }  # fmt: skip
    (asked,) = report.modules["suite.first"]["imported_by"]
    assert asked == {"module": "suite", "line": 9}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ["Logger", "logger"],
            "needs 'suite.logger', whose name is that of suite.Logger except for its case",
        ),
        (["my net"], "needs 'suite.my net', a name that no archive can hold"),
    ],
)
def test_names_that_no_archive_can_hold_are_refused_with_the_line(
    importable: Write, tmp_path: Path, names: list[str], said: str
) -> None:
    found = {f"suite/{name}/__init__.py": "NUMBER = 1" for name in names}
    error = refused_build("export:build", importable(SUITE | found), tmp_path)
    line, needs, advice = error.message.splitlines()
    assert line.startswith("suite/__init__.py:9: models[entry.name] = importlib.import_module(")
    assert needs.strip().startswith(said)
    assert advice.startswith("  What to do: rename ")


FOLDERS = {
    "mypkg/__init__.py": "",
    "mypkg/model.py": """
        import os
        from pathlib import Path

        import torch

        DATA = os.path.join(os.path.dirname(__file__), "data")
        if not os.path.exists(DATA):
            raise RuntimeError("run download.sh first")

        class Net(torch.nn.Module):
            def forward(self, x):
                return x + len(list(Path(DATA).glob("*.bin")))

        def build():
            return Net()

        def example_inputs():
            return torch.ones(2)
    """,
    "mypkg/data/a.bin": "a",
    "mypkg/data/b.bin": "b",
}
SAID = """\
mypkg/model.py:9: raise RuntimeError("run download.sh first")
  the archive of mypkg.model:build does not load in a fresh process: RuntimeError: run download.sh first
  Its code looked for files that are in your project, but not in the archive:
    mypkg/data/ (mypkg/model.py:8: if not os.path.exists(DATA):)
  What to do: --data 'mypkg/data/',"""


@pytest.mark.parametrize("asks", ["os.path.exists(DATA)", "Pool(1).apply(os.path.exists, [DATA])"])
def test_a_folder_that_code_asks_for_is_named_with_its_option(
    project: Write, tmp_path: Path, asks: str
) -> None:
    source = FOLDERS["mypkg/model.py"].replace("os.path.exists(DATA)", asks)
    source = source.replace("import os\n", "import os; from multiprocessing.pool import ThreadPool as Pool\n")
    root = project(FOLDERS | {"mypkg/model.py": source})
    with pytest.raises(PackError) as caught:
        pack("mypkg.model:build", tmp_path / "m.ptpkg", root=root)
    assert caught.value.message.startswith(SAID.replace("os.path.exists(DATA)", asks))


def test_the_option_for_a_name_with_a_globs_characters_matches_it(project: Write, tmp_path: Path) -> None:
    root = project({name.replace("data", "data [v1]"): text for name, text in FOLDERS.items()})
    model = root / "mypkg/model.py"
    model.write_text(model.read_text().replace('"data"', '"data [v1]"'))
    with pytest.raises(PackError, match="What to do: --data ") as caught:
        pack("mypkg.model:build", tmp_path / "m.ptpkg", root=root)
    option = caught.value.message.partition("What to do: --data '")[2].partition("'")[0]
    assert find_data(root, [option]) == ["mypkg/data [v1]/a.bin", "mypkg/data [v1]/b.bin"]


def test_an_empty_folder_exists_in_the_opened_archive(project: Write, tmp_path: Path) -> None:
    root = project({name: text for name, text in FOLDERS.items() if not name.endswith(".bin")})
    (root / "mypkg" / "data").mkdir()
    report = pack("mypkg.model:build", tmp_path / "m.ptpkg", root=root, data=["mypkg/data/"])
    assert [*report.plan.data] == ["mypkg/data/"]


SETTINGS = {
    "export.py": """
        import os
        import sys
        from pathlib import Path

        import torch

        # As libraries for settings do: without a word if there is no such file.
        for folder in sys.path:
            if Path(folder, ".env").is_file():
                os.environ["NET_SCALE"] = Path(folder, ".env").read_text()
        SCALE = float(os.environ["NET_SCALE"])

        class Net(torch.nn.Module):
            def forward(self, x):
                return x * SCALE

        def build():
            return Net()
    """,
    ".env": "2.0",
}


def test_a_hidden_file_that_is_missed_without_a_word_is_named(project: Write, tmp_path: Path) -> None:
    with pytest.raises(PackError) as caught:
        pack("export:build", tmp_path / "m.ptpkg", root=project(SETTINGS))
    assert "KeyError: 'NET_SCALE'" in caught.value.message
    assert "Read here and not in the archive, as a hidden file: .env (export.py:11: " in caught.value.message
    assert caught.value.message.endswith("; --data '.env' puts it in")


def test_plan_writes_its_decisions_if_the_archive_does_not_work(project: Write, tmp_path: Path) -> None:
    source = FOLDERS["mypkg/model.py"].replace("import torch\n", "import torch, cffi\n", 1)
    root = project(FOLDERS | {"mypkg/model.py": source})
    plan, archive = tmp_path / "plan.toml", tmp_path / "m.ptpkg"
    command = ["mypkg.model:build", "--root", str(root)]
    done = CliRunner().invoke(main, ["plan", *command, "-o", str(plan)])
    assert done.exit_code == 4
    assert f"{plan} contains the plan so far, marked as NOT WORKING" in done.output
    assert plan.read_text().startswith("# NOT WORKING: mypkg/model.py:9: raise RuntimeError(")
    assert [each.glob for each in read_plan(plan).proposals] == ["cffi.**"]

    done = CliRunner().invoke(
        main, ["pack", *command, "--plan", str(plan), "--data", "mypkg/data/", "-o", str(archive), "--json"]
    )
    assert done.exit_code == 0, done.output
    assert sorted(json.loads(done.stdout)["plan"]["data"]) == ["mypkg/data/a.bin", "mypkg/data/b.bin"]
