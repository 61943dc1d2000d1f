"""What a server imports into every interpreter leaves out what only packers need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SOURCE = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("name", ["verification", "self_testing", "signature_check", "signing", "externs"])
def test_code_that_judges_archives_imports_no_code_that_makes_them(name: str) -> None:
    module = f"interpool.archiver_ext.verify.{name}"
    done = subprocess.run([sys.executable, "-c", SOURCE, module], capture_output=True, check=True)
    imported = json.loads(done.stdout)
    assert module in imported
    assert "interpool.archiver_ext.packing" not in imported
    assert {each.partition(".")[0] for each in imported}.isdisjoint({"tomlkit", "click", "rich", "torch"})


def test_the_public_names_are_there_and_stay_what_they_are() -> None:
    from interpool import archiver_ext

    for _ in range(2):  # the second time all modules are imported
        assert callable(archiver_ext.pack)
        assert issubclass(archiver_ext.PackError, Exception)
        assert archiver_ext.PackReport.__name__ == "PackReport"
        assert archiver_ext.VerifyReport.__name__ == "VerifyReport"
        assert callable(archiver_ext.verify_archive)
        assert callable(archiver_ext.report_of)
        assert callable(archiver_ext.manifest_schema)
    with pytest.raises(AttributeError, match="no attribute 'unpack'"):
        archiver_ext.unpack  # noqa: B018
