"""What ``scripts/wheels`` leaves and says if a tool fails."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import wheels

# A venv's Python in which every tool does as little as possible, and `auditwheel` fails for 3.11.
TOOLS = """
#!/usr/bin/env bash
set -e
tool=$2 action=$3
while [ $# -gt 0 ]; do
  case $1 in --wheel-dir | --dest-dir | --dest) into=$2 ;; esac
  shift
done
case "$tool $action" in
  "pip wheel") mkdir -p "$into"; touch "$into/interpool-2-cp000-none-linux.whl" ;;
  "wheel unpack") mkdir "$into/interpool-2" ;;
  "wheel pack") touch "$into/interpool-2-cp000-none-linux.whl" ;;
  "auditwheel repair")
    case $0 in */cp311/*) exit 3 ;; esac
    mkdir "$into"; touch "$into/interpool-2-cp312-none-manylinux.whl" ;;
esac
"""


def test_a_failing_tool_is_named_and_leaves_the_old_wheel_and_the_other_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wheels, "WORK", tmp_path / "build")
    monkeypatch.setattr(wheels, "DIST", tmp_path / "dist")
    monkeypatch.setattr(wheels, "torches", lambda: ["0"])
    monkeypatch.setattr(wheels, "torch_folder", Path)
    monkeypatch.setattr(wheels, "ROOT", tmp_path)
    monkeypatch.setattr(wheels, "_pyproject", lambda: {"build-system": {"requires": []}, "project": NAMED})
    (tmp_path / "dist").mkdir()
    for python in ("311", "312"):
        (tmp_path / "dist" / f"interpool-1-cp{python}-none-manylinux.whl").touch()
        tools = tmp_path / "build" / f"cp{python}" / "venv" / "bin" / "python"
        tools.parent.mkdir(parents=True)
        tools.write_text(textwrap.dedent(TOOLS).lstrip())
        tools.chmod(0o755)
    assert wheels.main(["3.11", "3.12"]) == 1
    assert sorted(path.name for path in (tmp_path / "dist").iterdir()) == [
        "interpool-1-cp311-none-manylinux.whl",
        "interpool-2-cp312-none-manylinux.whl",
    ]
    printed = capsys.readouterr()
    assert "[wheels] 3.11: status 3 of " in printed.err
    assert " -m auditwheel repair " in printed.err
    assert "dist/interpool-2-cp312-none-manylinux.whl" in printed.out


NAMED = {"classifiers": ["Programming Language :: Python :: 3.11", "Programming Language :: Python :: 3.12"]}
