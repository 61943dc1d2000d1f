"""The commands in the README, and in the pages that take a newcomer through something, work as written."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import pytest
import settings_tables
import yaml
from documents import (
    LISTENS_ON,
    README,
    assert_printed,
    assert_that_the_readmes_model_answers,
    checkout,
    plain_answer,
    ports_in,
    run_document,
    shown_lines,
    wait_for_the_end,
)
from marked import Tables, with_tables
from paths import ROOT

from benchmarks import figures
from benchmarks.shared import report
from interpool.handler.cli import main

FIRST_ARCHIVE = ROOT / "docs" / "first-archive.md"
MIGRATING = ROOT / "docs" / "migrating.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^(?:<!-- ([^\n]*) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OF_INTERPOOL = re.compile(r"\binterpool ([a-z-]+)([^`|&)#\n]*)")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


WRITTEN = [
    *((page, tables, figures.BY, "scripts/benchmarks figures") for page, tables in figures.TABLES.items()),
    (settings_tables.PAGE, settings_tables.TABLES, settings_tables.BY, settings_tables.BY),
]


@pytest.mark.parametrize(
    ("page", "tables", "by", "command"), WRITTEN, ids=lambda value: getattr(value, "name", "")
)
def test_a_pages_tables_are_those_of_the_results_that_are_kept_and_of_the_code(
    page: Path, tables: Tables, by: str, command: str
) -> None:
    assert page.read_text() == with_tables(page, tables, by), f"run .venv/bin/python {command}"


def test_the_readme_says_of_scaling_what_was_measured() -> None:
    scaling = figures.kept("scaling")
    threads, processes = (scaling["measured"][f"two {each}"] for each in ("threads", "processes"))
    said = f"{scaling['bars'][0]['ratio']:.3f} of the rate of two processes, and two threads "
    assert f"{said}{report.ratio(threads, processes):.3f}." in README.read_text()


def test_the_readme_begins_with_what_was_measured() -> None:
    memory = figures.kept("memory")["ordinary"]
    said = f"{memory['pool, MB']:,.0f} MB in place of {memory['stock, MB']:,.0f} MB."
    assert said in README.read_text()


def test_commands_run_at_no_port_that_other_servers_have_by_default() -> None:
    assert ports_in(LISTENS_ON) == {"8080", "8081", "8082", "7070", "7071"}


def test_commands_in_the_readme_work_as_written_and_leave_nothing_running() -> None:
    with checkout() as directory:
        status, output = run_document(README, directory)
        assert status == 0, output

        assert_that_the_readmes_model_answers(directory, output)
        assert_printed(shown_lines(README), output)
        wait_for_the_end(directory)


@pytest.mark.long
def test_a_newcomers_folder_becomes_a_signed_archive_that_answers_over_rest() -> None:
    with checkout() as directory:
        status, output = run_document(FIRST_ARCHIVE, directory)
        assert status == 0, output

        asked = "import export; print(json.dumps(export.build()('a boring plot')))"
        expected = plain_answer(directory / "build" / "research", asked)
        (answer,) = [json.loads(text) for text in re.findall(r'\{\s*"bad"[^}]*\}', output)]
        assert answer == pytest.approx(expected, abs=1e-4), output
        plan = (directory / "build" / "research" / "plan.toml").read_text()
        decided = [line for line in plan.splitlines() if line.startswith(("[", '"'))]
        assert [line.partition(" = ")[0] for line in decided] == [
            "[serving]",
            "[data]",
            '"mood/vocabulary.txt"',
            "[intern]",
            "[extern]",
            '"regex.**"',
            "[mock]",
            '"pandas.**"',
        ]
        wait_for_the_end(directory)


@pytest.mark.long
def test_a_stock_server_moves_to_the_pool_and_back_under_load() -> None:
    with checkout() as directory:
        status, output = run_document(MIGRATING, directory)
        assert status == 0, output
        (counts,) = [json.loads(text) for text in re.findall(r'\{"answers"[^}]*\}', output)]
        assert counts["answers"] > 0
        assert (counts["failed"], counts["wrong"]) == (0, 0), output
        assert len(re.findall(r"^ok +load in interpreter", output, re.MULTILINE)) == 4, output
        served = output.partition("touch")[0]
        assert "eager/1.0" in served, output
        assert "scripted/1.0" in served, output
        wait_for_the_end(directory)


@pages
def test_every_page_that_a_page_links_to_exists(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pages
def test_commands_of_a_page_are_run_by_its_test_or_the_page_says_why_not(page: Path) -> None:
    blocks = FENCED.findall(page.read_text(encoding="utf-8"))
    assert [code for _, language, code in blocks if not language] == [], "name each block's language"
    reasons = [reason for reason, language, _ in blocks if language == "bash"]
    if page not in (README, FIRST_ARCHIVE, MIGRATING):
        assert all(reason.startswith(("shown, not run: ", "like ")) for reason in reasons), reasons
    named = [each for reason in reasons for each in re.findall(r"tests/[\w/]+\.py", reason)]
    assert [each for each in named if not (ROOT / each).exists()] == []


@pages
def test_a_page_shows_only_options_that_interpools_commands_have(page: Path) -> None:
    for name, rest in OF_INTERPOOL.findall(page.read_text(encoding="utf-8").replace("\\\n", " ")):
        command = main.get_command(click.Context(main), name)
        if command is not None and name != "serve":  # which takes torchserve's, too
            known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
            assert set(re.findall(r"(?<=\s)--[a-z][a-z-]*", rest)) - known - {"--help"} == set(), name


def test_the_citation_names_the_version_and_the_license_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]


@pytest.mark.parametrize("drawing", sorted((ROOT / "docs").glob("*/*.svg")), ids=lambda path: path.stem)
def test_a_diagram_or_plot_is_well_formed_titled_and_has_dark_colours(drawing: Path) -> None:
    root = ET.parse(drawing).getroot()
    named = {"svg": "http://www.w3.org/2000/svg"}
    assert root.findtext("svg:title", namespaces=named)
    assert "prefers-color-scheme: dark" in (root.findtext("svg:style", namespaces=named) or "")
