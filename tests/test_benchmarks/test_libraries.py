"""The libraries benchmark: what it writes down."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.libraries import benchmark
from benchmarks.shared import report
from interpool.native.diagnostics.run_trial import Status, Verdict


@pytest.mark.parametrize("status", Status)
def test_what_is_known_stays_where_a_run_says_nothing_of_the_libraries(
    status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = {"PAGE": tmp_path / "page.md", "KNOWN": tmp_path / "known.json", "RAW": tmp_path / "raw.json"}
    before = "<!-- libraries: begin (scripts/bench libraries) -->\nas it was\n<!-- libraries: end -->\n"
    for name, path in written.items():
        path.write_text(before)
        monkeypatch.setattr(benchmark, name, path)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(benchmark, "tried", lambda library: ("1.0", Verdict(library.call, status, "why")))
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--environment", sys.prefix])
    monkeypatch.setenv("PYTHONPATH", "")  # the benchmark sets it
    with pytest.raises(SystemExit) as ended:
        benchmark.main()
    says = status in (Status.COMPUTES, Status.HOST, Status.ONE, Status.NEVER)
    assert ended.value.code == (report.PASSED if says else report.FAILED)
    assert [path.read_text() != before for path in written.values()] == [says] * 3
