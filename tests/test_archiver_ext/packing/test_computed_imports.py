"""Which imports of computed names are seen."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from interpool.archiver_ext.packing.observe.computed_imports import ComputedImports

SOURCE = """
import importlib
import os.path, json
from xml import sax
stem = "dec" + "imal"
importlib.import_module(stem)
importlib.import_module("." + "sax", "xml")
__import__("json." + "decoder")

def late(name):
    importlib.import_module(name)
"""


@pytest.fixture
def lister(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "lister14.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lister14", raising=False)
    return "lister14"


def test_calls_are_seen_and_statements_are_not(lister: str) -> None:
    computed = ComputedImports()
    with computed.noting():
        found = importlib.import_module(lister)
        with pytest.raises(ModuleNotFoundError):
            found.late("no_such_module_14")
        found.late("colorsys")
    found.late("fractions")
    assert computed.by[lister] == {"decimal": 6, "xml.sax": 7, "json.decoder": 8, "colorsys": 11}
    assert computed.by[__name__] == {lister: 38}
