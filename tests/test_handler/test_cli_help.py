"""The help of all commands: in groups, within 80 columns, in one notation, with examples that work."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import click
import pytest
from click.testing import CliRunner
from pydantic_core import PydanticUndefined

from interpool.archiver_ext.commands.help_text import CONTEXT_SETTINGS, REPEATABLE
from interpool.handler.cli import GROUPS, main
from interpool.handler.commands.serve_help import variables
from interpool.handler.config import HostSettings
from interpool.handler.frontend.shim import SETTINGS

COMMANDS = sorted(main.list_commands(click.Context(main)))
OF_OTHER_COMMANDS = {"INTERPOOL_KEY_PASSWORD", "INTERPOOL_PREPARED"}  # sign's, and C++ programs'


def help_of(*command: str, columns: int = 80) -> str:
    """What interpool itself prints; ``serve`` has TorchServe's own help after it."""
    with patch("os.execv"):
        done = CliRunner().invoke(main, [*command, "-h"], env={"COLUMNS": str(columns)})
    assert done.exit_code == 0, done.output
    return done.output.partition("\ntorchserve's own flags:")[0].rstrip()


def found(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


def examples_of(command: str) -> list[str]:
    """The command lines at the end of a command's help."""
    lines = help_of(command).rpartition("  Examples:\n")[2]
    return [line.strip() for line in lines.replace("\\\n", " ").splitlines()]


# ---- the list of commands ------------------------------------------------------------------------


def test_every_command_stands_in_one_group() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == COMMANDS


def test_no_line_of_the_list_of_commands_is_cut_or_wrapped() -> None:
    listed = help_of().partition(f"{next(iter(GROUPS))}:\n")[2].partition("\n  Exit status:")[0]
    lines = [line for line in listed.splitlines() if line]
    assert [line for line in lines if line.endswith(":")] == [f"{title}:" for title in GROUPS][1:]
    commands = [line.split()[0] for line in lines if not line.endswith(":")]
    assert commands == [name for names in GROUPS.values() for name in names]
    assert "..." not in listed


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_descriptions_stand_below_each_other_and_are_whole(columns: int) -> None:
    said = " ".join(help_of(columns=columns).split())
    assert [name for name in COMMANDS if f"{name} {found(name).short_help}" not in said] == []


# ---- the same for every command ------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_longer_than_a_terminal_is_wide(command: str) -> None:
    assert [line for line in help_of(command).splitlines() if len(line) > 80] == []


def test_command_lines_in_the_help_of_sign_are_not_wrapped() -> None:
    lines = [line.strip() for line in help_of("sign").splitlines()]
    assert "openssl ecparam -name prime256v1 -genkey -noout -out key.pem" in lines
    assert "openssl ec -in key.pem -pubout -out pub.pem" in lines


@pytest.mark.parametrize("command", COMMANDS)
def test_options_have_help_and_show_defaults_and_repetition_in_one_way(command: str) -> None:
    asked = found(command)
    for option in asked.get_params(click.Context(asked, **CONTEXT_SETTINGS)):
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert not re.search("default:|by default|defaults to", option.help), option.name
            assert option.help.endswith(REPEATABLE) == option.multiple, option.name


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_examples_that_the_command_takes(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.mar").touch()  # some options take only a file that exists
    examples = examples_of(command)
    assert 1 <= len(examples) <= 4
    for example in examples:
        (words,) = re.findall(r"(?:^|\$\()interpool ([^)]*)", example)
        name, *arguments = shlex.split(words)
        assert name == command
        found(command).make_context(name, arguments, parent=click.Context(main))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that has what the examples name."""
    root = tmp_path_factory.mktemp("examples")
    (root / "mypkg").mkdir()
    (root / "mypkg" / "nets.py").write_text("import torch, numpy\nclass Net(torch.nn.Linear): pass\n")
    (root / "mypkg" / "factory.py").write_text(
        "import torch\nfrom mypkg.nets import Net\n"
        "def build(): return Net(4, 2)\ndef example_inputs(): return (torch.ones(1, 4),)\n"
    )
    (root / "trial.py").write_text("def work(): return 1\n")
    (root / "my_extension.py").touch()
    (root / "model_store").mkdir()
    key = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "key.pem"]
    subprocess.run(key, cwd=root, check=True, capture_output=True)
    public = ["openssl", "ec", "-in", "key.pem", "-pubout", "-out", "pub.pem"]
    subprocess.run(public, cwd=root, check=True, capture_output=True)
    return root


IN_ORDER = [
    "plan",
    "pack",
    "sign",
    "verify",
    "archive",
    "handler",
    "inspect",
    "why",
    "doctor",
    "cache",
    "home",
]


@pytest.mark.long
def test_examples_of_commands_that_serve_nothing_work_one_after_another(project: Path) -> None:
    environment = {**os.environ, "PATH": os.pathsep.join([f"{sys.prefix}/bin", os.environ["PATH"]])}
    environment |= {"PYTHONPATH": ".", "XDG_DATA_HOME": str(project / "data")}
    for command in IN_ORDER:
        own = {"INTERPOOL_CACHE": str(project / "cache")} if command == "cache" else {}
        for example in examples_of(command):
            done = subprocess.run(
                ["/bin/sh", "-c", example],
                cwd=project,
                env={**environment, **own},
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, example + done.stdout + done.stderr


# ---- serve ---------------------------------------------------------------------------------------


def test_the_help_of_serve_has_interpools_own_options_and_variables_before_torchserves() -> None:
    with patch("os.execv") as started:
        said = CliRunner().invoke(main, ["serve", "--help"]).output
    places = [said.index(word) for word in ("--direct", "--no-wait", *dict(variables()), "Examples:")]
    assert places[-1] == max(places)
    assert said.index("torchserve's own flags:") > max(places)
    assert started.call_args.args[1][-1] == "--help"


def test_the_help_of_serve_names_every_variable_that_a_server_reads() -> None:
    assert set(dict(variables())) == SETTINGS - OF_OTHER_COMMANDS


def test_the_help_of_serve_has_the_defaults_of_the_variables() -> None:
    lines = dict(variables())
    for field in HostSettings.model_fields.values():
        default = field.default
        if default not in (None, "", (), PydanticUndefined):
            shown = default if isinstance(default, str) else f"{float(default):g}"
            assert lines[str(field.alias)].endswith(f"[default: {shown}]"), field.alias


def test_torchserves_flags_pass_as_they_are() -> None:
    flags = ["--stop", "--models", "a=b.mar", "c.mar", "-v", "--ts-config=x", "--json"]
    with patch("os.execv") as started:
        assert CliRunner().invoke(main, ["serve", "--no-wait", *flags]).exit_code == 0
    assert started.call_args.args[1][1:] == flags
