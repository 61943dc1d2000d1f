"""Packing's children are, where tests fork them, what they are where they are started."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import warm

from interpool.archiver_ext import PackError, pack

SOURCE = """
    import json, os, signal, sys, warnings
    from pathlib import Path

    def build():
        main = sys.modules["__main__"]
        found = {
            "parent": os.getppid(),
            "modules": sorted(sys.modules),
            "path": sys.path,
            "arguments": sys.argv,
            "flags": list(sys.flags),
            "filters": [str(each) for each in warnings.filters],
            "program": [main.__name__, main.__file__, main.__package__, main.__spec__.name],
            "environment": dict(os.environ),
            "directory": os.getcwd(),
            "signals": [str(signal.getsignal(each)) for each in signal.valid_signals()],
            "hash": hash("the seed of hashes"),
            "descriptors": len(os.listdir("/proc/self/fd")),
        }
        Path(__file__).with_name("found.json").write_text(json.dumps(found))
        return len

    def dies():
        os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.fixture
def own_warm_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Others may have as many as there can be, of other programs."""
    monkeypatch.setattr(warm, "_warm", {})
    yield
    warm.end()


@pytest.mark.usefixtures("own_warm_processes")
@pytest.mark.skipif(warm.FRESH in os.environ, reason="no child is forked")
def test_a_forked_child_finds_what_a_fresh_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.py").write_text(textwrap.dedent(SOURCE))
    found, archives = [], []
    for is_aside in (True, False):
        monkeypatch.setattr(warm, "is_aside", is_aside)
        archive = pack("m:build", tmp_path / "m.ptpkg", root=tmp_path).output
        found.append(json.loads((tmp_path / "found.json").read_text()))
        archives.append(archive.read_bytes())
    with pytest.raises(PackError, match="was killed by SIGTERM"):
        pack("m:dies", archive, root=tmp_path)
    fresh, forked = found
    assert fresh.pop("parent") == os.getpid() != forked.pop("parent")
    assert forked == fresh
    assert archives[1] == archives[0]
