from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from click.testing import CliRunner

from interpool.archiver_ext import PackError, PackReport
from interpool.archiver_ext.commands import pack as pack_command
from interpool.archiver_ext.commands.subcommands import commands
from interpool.archiver_ext.packing.plan import Plan, Proposal
from interpool.native.archive.format import SERVED_AS_KINDS_ARE

if TYPE_CHECKING:
    from test_archiver_ext.conftest import Write

WANDB = Proposal("wandb.**", "mock", "never ran", "mypkg/m.py:9: import wandb")
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
            "wandb": {"action": "mock", "origin": "user", "reason": "--mock wandb", "imported_by": []},
        },
        externs=[{"module": "torch", "distribution": "torch", "version": "2.13.0"}],
        warnings=["mypkg/m.py:3: import missing\n  could not be imported"],
        size=2_000_000,
        seconds={"build": 1.0, "export": 0.25, "digest": 0.5, "trial": 2.5},
        serving=SERVED_AS_KINDS_ARE,
        request=None,
    )
    with patch.object(pack_command, "pack", return_value=report) as packing:
        result = CliRunner().invoke(PACK, ["mypkg.m:build", "-o", "m.ptpkg", "--mock", "wandb"])
    assert packing.call_args.kwargs["mock"] == ("wandb",)
    said = " ".join(result.output.split())
    assert "2 interned, 1 extern, 1 mocked" in said
    assert "in the project" in said
    assert "the server must have: torch 2.13.0" in said
    assert "warning: mypkg/m.py:3: import missing" in said
    assert "never ran" in said
    assert "mypkg/m.py:9: import wandb" in said
    assert "corrected: einops is not mocked" in said
    assert "packed m.ptpkg (module, 2.00 MB; 0.8 s to write it, 3.5 s to build, run, scan and try it)" in said
    assert "no self-test" in said


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


def test_refusal_is_left_to_the_command_group(tmp_path: Path) -> None:
    result = CliRunner().invoke(PACK, ["nopkg:x", "-o", str(tmp_path / "m.ptpkg"), "--root", str(tmp_path)])
    assert isinstance(result.exception, PackError)
    assert result.exit_code == 1
