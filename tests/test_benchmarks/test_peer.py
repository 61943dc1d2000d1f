"""What is measured of a free-threaded CPython: which one is accepted, and its rows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from bench import bench, measured

from benchmarks import figures
from benchmarks.scaling import peer as scaling_peer
from benchmarks.shared import peer

VARIABLE = "INTERPOOL_TEST_FREE_THREADED_PYTHON"
WAYS = (
    "one process",
    "two processes",
    "two threads under the GIL",
    "two interpreters",
    "two threads, movable object",
)


@pytest.mark.parametrize("program", ["nothing", "/bin/false", "/bin/true"])
def test_a_program_that_is_no_python_is_refused(program: str) -> None:
    with pytest.raises(peer.PeerError, match="does not run as a Python"):
        peer.find(Path(program))


@pytest.mark.long
@pytest.mark.parametrize("name", ["scaling", "memory"])
def test_a_python_with_a_gil_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    done = bench(tmp_path, name, "--peer", sys.executable)
    assert done.returncode == 2
    assert "is built with a GIL; name a free-threaded build" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_pages_say_that_no_result_is_kept_until_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "kept_file", lambda name: tmp_path / f"{name}.json")
    for table in (figures.free_threads, figures.free_threads_in_short, figures.further_threads):
        assert table() == "No result is kept yet."


@pytest.fixture
def real_peer() -> peer.Peer:
    """The machine's, which the environment names."""
    if VARIABLE not in os.environ:
        pytest.skip(f"{VARIABLE} names no free-threaded Python with torch")
    return peer.find(Path(os.environ[VARIABLE]), other_torch=True)


@pytest.mark.long
def test_scaling_measures_a_real_peer_beside_interpreters(real_peer: peer.Peer, tmp_path: Path) -> None:
    result, printed = measured(
        tmp_path, "scaling", "--peer", str(real_peer.python), "--other-torch", "--rounds=1", "--seconds=0.1"
    )
    assert result["peer"] == {"version": real_peer.version, "torch": real_peer.torch}
    assert result["options"][:2] == ["--peer", "PATH"]
    assert result["left_out"].keys() <= {"bert"}
    for model in scaling_peer.MODELS:
        ways = [name.partition(": ")[2] for name in result["measured"] if name.startswith(f"{model}: ")]
        peers = ways[len(WAYS) :]
        assert ways[: len(WAYS)] == [*WAYS]
        if model not in result["left_out"]:
            assert [way.partition(", free-threaded")[0] for way in peers] == [*scaling_peer.PEERS]
            assert all(f"{real_peer.name}, GIL o" in way and way in printed for way in peers)
    assert all(min(rates) > 0 for rates in result["measured"].values())


@pytest.mark.long
def test_memory_measures_a_real_peers_threads(real_peer: peer.Peer, tmp_path: Path) -> None:
    result, printed = measured(
        tmp_path, "memory", "--peer", str(real_peer.python), "--other-torch", "--rounds=1", "--further=1"
    )
    (thread, *_) = (name for name in result["measured"] if name.startswith("thread"))
    assert f"{real_peer.name}, GIL o" in thread
    assert thread in printed
    kinds = {name.partition(",")[0].partition(" ")[0] for name in result["measured"]}
    assert kinds == {"lean", "process", "thread"}
