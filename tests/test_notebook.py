"""The notebook runs, prints what it shows, and leaves no process behind, even if a cell fails."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from paths import ROOT
from waiting import wait_for

NOTEBOOK = ROOT / "docs" / "notebooks" / "memory.ipynb"
SERVES = "server = Server("


@pytest.fixture
def notebook() -> NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in which the notebook makes its own: with a short path, as sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="ip-") as folder:
        yield Path(folder)


def shown(notebook: NotebookNode) -> list[tuple[str, list[str]]]:
    """What each cell prints, and the formats of what it draws."""
    found = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        printed = "".join(output.get("text", "") for output in outputs)
        found.append((printed, [kind for output in outputs for kind in sorted(output.get("data", []))]))
    return found


def execute(notebook: NotebookNode, place: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(place)}
    NotebookClient(notebook, timeout=600).execute(env=environment)


def processes_in(place: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR", "").startswith(str(place)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_the_notebook_is_small_and_has_no_paths_of_the_machine_that_ran_it() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 100_000
    assert "/tmp/" not in text


@pytest.mark.long
def test_the_notebook_runs_and_prints_what_it_shows(notebook: NotebookNode, place: Path) -> None:
    before = shown(notebook)
    execute(notebook, place)
    assert shown(notebook) == before
    assert before[-1] == ("", ["image/png", "text/plain"])
    wait_for(lambda: not processes_in(place), "the servers to end", pause=0.5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("end", "error"),
    [("raise ZeroDivisionError", CellExecutionError), ("os.kill(os.getpid(), 9)", DeadKernelError)],
)
def test_a_cell_that_fails_leaves_no_server_behind(
    end: str, error: type[Exception], notebook: NotebookNode, place: Path
) -> None:
    serving = next(number for number, cell in enumerate(notebook.cells) if SERVES in cell["source"])
    notebook.cells[serving]["source"] += f"\n{end}"
    with pytest.raises(error):
        execute(notebook, place)
    wait_for(lambda: not processes_in(place), "the servers to end", pause=0.5)
