"""Compiled modules of a bundle: they hold wherever they are copied to, and name no place."""

from __future__ import annotations

import importlib.util
import marshal
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from interpool.native.bundle.bytecode import pyc_of

SOURCE = "def outer():\n    def inner():\n        return 42\n    return inner()\n"


def test_python_takes_it_if_its_source_has_another_time(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(SOURCE)
    cached = Path(importlib.util.cache_from_source(str(source)))
    cached.parent.mkdir()
    cached.write_bytes(pyc_of(source, "module.py") or b"")
    os.utime(source, (1, 1))
    done = subprocess.run(
        [sys.executable, "-vc", "import module; print(module.outer(), module.outer.__code__.co_filename)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["42", str(source)]
    assert f"{cached} matches {source}" in done.stderr


def test_pythons_own_compiled_file_is_taken_only_while_it_is_up_to_date(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("value = 1\n")
    py_compile.compile(str(source))
    before = pyc_of(source, "module.py")
    source.write_text("value = 12345\n")
    after = pyc_of(source, "module.py")
    assert before is not None
    assert after is not None
    assert 12345 not in marshal.loads(before[16:]).co_consts
    assert 12345 in marshal.loads(after[16:]).co_consts


@pytest.mark.parametrize("text", [b"print 'Python 2'\n", b"\xff\xfe", b"a = 1\0"])
def test_a_file_that_is_no_python_is_left_uncompiled(tmp_path: Path, text: bytes) -> None:
    source = tmp_path / "module.py"
    source.write_bytes(text)
    assert pyc_of(source, "module.py") is None
