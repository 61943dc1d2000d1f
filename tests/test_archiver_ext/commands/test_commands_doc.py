"""The pages on commands and on the manifest name all that there is."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from paths import ROOT

from interpool.archiver_ext.commands.archive import archive_command
from interpool.archiver_ext.inspect.import_chains import Link, Why
from interpool.archiver_ext.inspect.inspection import inspect_archive
from interpool.archiver_ext.mar.making import FORMATS, MarReport
from interpool.handler.cli import EXIT_STATUS
from interpool.handler.host.readiness import Readiness
from interpool.native.archive.format import Manifest
from interpool.native.provision.inventory import CachedSet

DOCS = ROOT / "docs"


def section(page: str, heading: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def quoted(text: str) -> set[str]:
    return {word for each in re.findall(r"`([^`]+)`", text) for word in re.split(r"[^\w-]+", each)}


def first_cells(text: str) -> set[str]:
    """What the tables' first columns name."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def test_every_key_of_the_json_is_documented(packed_shop: Path) -> None:
    keys = {*inspect_archive(packed_shop).as_dict(), "curl"}
    assert first_cells(section("commands.md", "inspect")) - {"--json"} == keys
    why = section("commands.md", "why")
    assert first_cells(why) - {"--json"} == {field.name for field in fields(Why)}
    assert {field.name for field in fields(Link)} <= quoted(why)
    assert {field.name for field in fields(MarReport)} | {"url"} <= quoted(section("commands.md", "archive"))


def test_the_keys_of_lists_in_the_json_are_documented() -> None:
    for kind in (CachedSet, Readiness):
        assert {field.name for field in fields(kind)} <= quoted(section("commands.md", "JSON"))


def test_every_flag_and_format_of_archive_is_documented() -> None:
    words = quoted(section("commands.md", "archive"))
    for option in archive_command.params:
        if option.name not in ("package", "as_json"):
            assert set(option.opts) <= words, option.name
    assert set(FORMATS) <= words


def test_exit_statuses_are_the_same_in_docs_and_help() -> None:
    in_docs = re.findall(r"^\| (\d) \|", section("commands.md", "Exit status"), flags=re.MULTILINE)
    assert in_docs == re.findall(r"^  (\d)  ", EXIT_STATUS, flags=re.MULTILINE)


def test_every_field_of_the_manifest_is_documented() -> None:
    text = section("manifest.md", "Fields, schema 5").partition("### Modules")[0]
    assert first_cells(text) == set(Manifest.__annotations__)
