"""Failures that name their row in the documentation."""

from __future__ import annotations

import pytest
from paths import ROOT

from interpool.archiver_ext.packing.known_failures import ROWS, is_advised, row_for

TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"


def test_every_known_failure_is_in_the_document() -> None:
    table = TROUBLESHOOTING.read_text().partition("### What an archive cannot hold")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| ")]
    assert set(ROWS) <= set(rows)


@pytest.mark.parametrize(
    ("error", "row"),
    [
        (
            "ValueError: Default process group has not been initialized, please make sure to",
            "a process group",
        ),
        (
            "ValueError: Error initializing torch.distributed using env:// rendezvous: RANK expected",
            "a process group",
        ),
        (
            "RuntimeError: cannot cache function 'f': no locator available for file '<torch_package_0>.m.py'",
            "numba",
        ),
        ("InstantiationException: Error locating target 'mypkg.Net', set env var HYDRA_FULL", "hydra"),
        ("ModuleNotFoundError: mypkg is in the archive, but the code looked for it outside", "hydra"),
        ("PackageNotFoundError: No package metadata was found for mypkg", "importlib.metadata"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'labels.txt'", 'open("labels.txt")'),
        ("OSError: cannot open weights.bin: No such file or directory", 'open("labels.txt")'),
    ],
)
def test_a_failure_names_its_row(error: str, row: str) -> None:
    assert row in row_for(error)


def test_a_row_that_needs_no_reading_is_said_with_what_to_do() -> None:
    error = "RuntimeError: cannot cache function 'f': no locator available for file 'm.py'"
    assert "What to do: leave out cache=True" in row_for(error)
    assert is_advised(error)
    assert not is_advised("FileNotFoundError: [Errno 2] No such file or directory: 'labels.txt'")


def test_a_failure_that_is_not_known_names_no_row() -> None:
    assert row_for("ValueError: no such layer") == ""
