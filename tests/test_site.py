"""The documentation site builds without a warning, so each link leads somewhere; it has the public names."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from paths import ROOT

import interpool
from interpool import archiver_ext
from interpool.handler.cli import main
from interpool.handler.config import HostSettings, ModelSettings
from interpool.handler.described import described
from interpool.handler.run.options import Options
from interpool.handler.variables import OtherVariables


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def shown(page: Path) -> str:
    """A page's text, without tags."""
    return html.unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))


def test_the_site_has_every_page(site: Path) -> None:
    pages = {path.stem for kind in ("*.md", "notebooks/*.ipynb") for path in (ROOT / "docs").glob(kind)}
    assert {path.parent.name for path in site.rglob("index.html")} >= pages


def test_the_front_page_is_the_readme_and_links_to_pages_of_the_site(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    assert "scripts/demo" in front
    assert 'href="faq/"' in front
    assert 'href="docs/' not in front


@pytest.mark.parametrize("settings", [ModelSettings, HostSettings, OtherVariables, Options])
def test_the_site_has_a_row_for_each_setting(settings: type, site: Path) -> None:
    page = (site / "settings" / "index.html").read_text(encoding="utf-8")
    found = described(settings)
    assert [each.name for each in found if f"<td><code>{each.name}</code></td>" not in page] == []
    assert all(each.description for each in found)


def test_the_site_has_each_option_of_each_command(site: Path) -> None:
    page = shown(site / "command-line" / "index.html")
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert f"Usage: interpool {name} " in page
        options = [each.opts[-1] for each in command.params if isinstance(each, click.Option)]
        assert [option for option in options if option not in page] == []


def test_the_site_has_each_header_of_the_cpp_api(site: Path) -> None:
    page = shown(site / "cpp-api" / "index.html")
    headers = {path.name: path.read_text() for path in (ROOT / "native/cpp/include/interpool").glob("*.h")}
    del headers["export.h"]  # has no names for programs
    assert [name for name, text in headers.items() if text.strip() not in page] == []


@pytest.mark.long
@pytest.mark.parametrize("package", [interpool, archiver_ext])
def test_the_site_documents_every_public_name(package, site: Path) -> None:
    headings = re.findall(r'<h3 id="[\w.]*?(\w+)"', (site / "api" / "index.html").read_text(encoding="utf-8"))
    errors = re.findall(
        r"<td><code>(\w+)</code></td>", (site / "errors" / "index.html").read_text(encoding="utf-8")
    )
    assert set(package.__all__) - {*headings, *errors} == set()
