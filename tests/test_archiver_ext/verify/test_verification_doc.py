"""The page on verify and sign names all that there is."""

from __future__ import annotations

import re
from dataclasses import fields

import click
import pytest
from paths import ROOT

from interpool.archiver_ext.commands.verify import PASSWORD_VARIABLE, sign_command, verify_command
from interpool.archiver_ext.verify.verification import STAGES, Stage, VerifyReport

DOCS = ROOT / "docs"


def section(page: str, heading: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    return re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str) -> set[str]:
    return set(re.findall(r"^\| `([^`]+)`", text, flags=re.MULTILINE))


@pytest.mark.parametrize("command", [verify_command, sign_command])
def test_every_option_is_documented(command: click.Command) -> None:
    text = section("verification.md", str(command.name))
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert [option.name for option in options if max(option.opts, key=len) not in text] == []
    assert command is verify_command or PASSWORD_VARIABLE in text


def test_every_stage_and_key_of_the_report_is_documented() -> None:
    text = section("verification.md", "verify")
    keys = {*VerifyReport("m").as_dict(), "curl"}  # which the command adds
    assert first_cells(text) == {*STAGES, *keys}
    assert all(f"`{field.name}`" in text for field in fields(Stage))
