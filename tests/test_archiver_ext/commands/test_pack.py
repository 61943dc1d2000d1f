from __future__ import annotations

import json
import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import click
import pytest
from click.testing import CliRunner

from interpool.archiver_ext import PackReport
from interpool.archiver_ext.commands import pack as pack_command
from interpool.archiver_ext.commands.subcommands import commands
from interpool.archiver_ext.packing.options import PackOptions
from interpool.archiver_ext.packing.plan import Plan, Proposal
from interpool.archiver_ext.packing.serving_choices import Choices
from interpool.native.archive.format import SERVED_PLAINLY

if TYPE_CHECKING:
    from test_archiver_ext.conftest import Write

(PLAN,) = [command for command in commands if command.name == "plan"]
(PACK,) = [command for command in commands if command.name == "pack"]

SOURCE = {
    "mypkg/m.py": """
        import annotated_types
        print("the user's print")
        def entry(): return 1
        def build(): return entry
    """
}


def test_summary_counts_and_says_why() -> None:
    report = PackReport(
        spec="mypkg.m:build",
        output=Path("m.ptpkg"),
        kind="module",
        plan=Plan(
            "mypkg.m:build",
            data={f"mypkg/vocab/{number}.txt": "mypkg/m.py:7: open(file)" for number in range(100)},
            proposals=(Proposal("wandb.**", "mock", "never ran", "mypkg/m.py:9: import wandb"),),
        ),
        inputs=None,
        attempts=2,
        corrections=["einops is not mocked"],
        modules={
            "mypkg": {"action": "intern", "origin": "project", "reason": "in the project", "imported_by": []},
            "mypkg.m": {
                "action": "intern",
                "origin": "project",
                "reason": "in the project",
                "imported_by": [],
            },
            "torch": {
                "action": "extern",
                "origin": "server",
                "reason": "every server has it",
                "imported_by": [],
            },
            **{
                name: {
                    "action": "extern",
                    "origin": "standard_library",
                    "reason": "standard library",
                    "imported_by": [],
                }
                for name in ("os", "os.path", "sys")
            },
            "wandb": {"action": "mock", "origin": "user", "reason": "--mock wandb", "imported_by": []},
        },
        externs=[{"module": "torch", "distribution": "torch", "version": "2.13.0"}],
        warnings=["mypkg/m.py:3: import missing\n  could not be imported"],
        lazy=["mypkg/m.py:5: import later", "mypkg/m.py:6: import later_still"],
        size=2_000_000,
        seconds={"build": 1.0, "export": 0.25, "digest": 0.5, "trial": 2.5},
        serving=SERVED_PLAINLY,
        request=None,
    )
    with patch.object(pack_command, "pack", return_value=report) as packing:
        result = CliRunner().invoke(PACK, ["mypkg.m:build", "-o", "m.ptpkg", "--mock", "wandb"])
    assert packing.call_args.kwargs["mock"] == ("wandb",)
    said = " ".join(result.stdout.split())
    assert "2 interned, 4 extern, 1 mocked" in said
    assert "every server has them: torch, 2 more" in said
    assert "standard library │" not in said
    assert said.count("data: ") == 1
    assert "data: 100 files in mypkg/vocab/ (mypkg/m.py:7: open(file))" in said
    assert "2 lazy imports that did not run: interpool plan -v mypkg.m:build" in said
    assert said.startswith("warning: mypkg/m.py:3: import missing"), "what matters stands first"
    assert "in the project" in said
    assert "the server must have: torch 2.13.0" in said
    assert "warning: mypkg/m.py:3: import missing" in said
    assert "never ran" in said
    assert "mypkg/m.py:9: import wandb" in said
    assert "corrected: einops is not mocked" in said
    assert "packed m.ptpkg (module, 2.00 MB; 0.8 s to write it, 3.5 s to build, run, scan and try it)" in said
    assert "no self-test" in said

    with patch.object(pack_command, "pack", return_value=report):
        result = CliRunner().invoke(PACK, ["mypkg.m:build", "-o", "m.ptpkg", "-v"])
    said = " ".join(result.stdout.split())
    assert said.count("data: ") == 100
    assert "lazy import: mypkg/m.py:6: import later_still" in said
    assert "every server has them" not in said


@pytest.mark.long
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--extern", "annotated_*"], "--root {root} --no-inputs --extern 'annotated_*' -o model.ptpkg"),
        (
            ["--extern", "annotated_*", "-o", "{plan}"],
            "--root {root} --no-inputs --plan {plan} -o model.ptpkg",
        ),
    ],
)
def test_plans_next_command_packs_what_was_planned(
    project: Write, tmp_path: Path, given: list[str], expected: str
) -> None:
    places = {"root": str(project(SOURCE)), "plan": str(tmp_path / "my plan.toml")}
    args = ["mypkg.m:build", "--root", places["root"], "--no-inputs", *given]
    done = CliRunner().invoke(PLAN, [each.format(**places) for each in args])
    (said,) = [line for line in done.output.splitlines() if line.startswith("next: ")]
    quoted = {name: shlex.quote(place) for name, place in places.items()}
    assert said == f"next: interpool pack mypkg.m:build {expected.format(**quoted)}"
    as_json = CliRunner().invoke(PLAN, [*(each.format(**places) for each in args), "--json"])
    assert json.loads(as_json.stdout)["next"] == said.removeprefix("next: ")
    words = shlex.split(said.removeprefix("next: interpool pack "))
    words[-1] = str(tmp_path / "model.ptpkg")
    assert CliRunner().invoke(PACK, words).exit_code == 0


@pytest.mark.parametrize("command", [PLAN, PACK])
def test_every_option_of_packing_is_an_option_of_the_commands(command: click.Command) -> None:
    defaults = {str(option.name): option.default for option in command.params}
    for declared in fields(PackOptions):
        if declared.name == "serving":
            assert {each.name for each in fields(Choices)} <= defaults.keys()
        elif declared.default is True:
            assert f"no_{declared.name}" in defaults
        elif isinstance(declared.default, float):
            assert defaults[declared.name] == declared.default
        else:
            assert declared.name in defaults


@pytest.mark.parametrize("option", ["--rtol", "--atol"])
def test_a_tolerance_is_a_finite_number(option: str) -> None:
    for value in ("inf", "nan"):
        assert CliRunner().invoke(PACK, ["mypkg.m:build", "-o", "m.ptpkg", option, value]).exit_code == 2


def test_json_is_all_that_stdout_holds(project: Write, tmp_path: Path) -> None:
    args = ["mypkg.m:build", "-o", str(tmp_path / "m.ptpkg"), "--root", str(project(SOURCE))]
    result = CliRunner().invoke(PACK, [*args, "--json", "--extern", "annotated_*"])
    report = json.loads(result.stdout)
    assert report["modules"]["annotated_types"] == {
        "action": "extern",
        "origin": "user",
        "reason": "--extern annotated_*",
        "imported_by": [{"module": "mypkg.m", "line": 2}],
    }
    assert report["kind"] == "callable"
    assert report["curl"] == ""
    assert result.stderr == "interpool: packing mypkg.m:build\n"
