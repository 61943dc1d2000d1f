"""What the serving half of ``interpool doctor`` makes of a machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import container_rules
import pytest

from interpool.handler.frontend import serving_checks


@pytest.mark.parametrize(
    ("said", "ok", "shown"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment\n', True, "17.0.15"),
        (
            'Picked up JAVA_TOOL_OPTIONS: "-Da=8"\nopenjdk version "11.0.2" 2019-01-15\n',
            True,
            "11.0.2",
        ),
        ('java version "1.8.0_401"\n', False, "1.8.0_401"),
        ("not a version\nat all\n", False, "not a version"),
    ],
)
def test_java_is_known_by_its_version_after_other_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, ok: bool, shown: str
) -> None:
    (tmp_path / "said").write_text(said)
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\ncat {tmp_path}/said >&2\n")
    java.chmod(0o755)
    monkeypatch.setattr(serving_checks, "java_path", lambda: str(java))
    (check,) = [each for each in serving_checks.checks() if each.name == "java"]
    assert check.ok is ok
    assert shown in check.detail
    assert "Picked up" not in check.detail


def test_ordinary_archives_can_be_in_the_pool_under_a_containers_rules() -> None:
    ask = "from interpool.handler.frontend.serving_checks import working_directories as w; print(w().mark)"
    command = [sys.executable, container_rules.__file__, sys.executable, "-c", ask]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "ok\n"
