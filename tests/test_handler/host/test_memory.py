"""How much memory is left, read from what the kernel shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from interpool.handler.host.memory import data_size, free_part


def _system(root: Path, available: int = 500, group: str = "0::/pods/one\n") -> tuple[Path, Path]:
    proc, cgroups = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n")
    (proc / "self" / "cgroup").write_text(group)
    (cgroups / "pods" / "one").mkdir(parents=True)
    return proc, cgroups


def _limit(directory: Path, most: str, used: int, cache: int) -> None:
    (directory / "memory.max").write_text(f"{most}\n")
    (directory / "memory.current").write_text(f"{used}\n")
    (directory / "memory.stat").write_text(f"anon 1\ninactive_file {cache}\n")


def test_without_a_limit_memory_is_the_machines(tmp_path: Path) -> None:
    proc, cgroups = _system(tmp_path)
    assert free_part(None, proc, cgroups) == 0.5
    _limit(cgroups / "pods" / "one", "max", 999, 0)
    assert free_part(None, proc, cgroups) == 0.5


def test_a_groups_limit_counts_without_pages_that_can_be_given_back(tmp_path: Path) -> None:
    proc, cgroups = _system(tmp_path)
    _limit(cgroups / "pods" / "one", "100", 90, 20)
    assert free_part(None, proc, cgroups) == pytest.approx(0.3)


def test_the_limit_of_a_parent_group_counts_too(tmp_path: Path) -> None:
    proc, cgroups = _system(tmp_path)
    _limit(cgroups / "pods" / "one", "100", 10, 0)
    _limit(cgroups / "pods", "200", 180, 0)
    assert free_part(None, proc, cgroups) == pytest.approx(0.1)


def test_groups_of_version_1_count_likewise(tmp_path: Path) -> None:
    proc, cgroups = _system(tmp_path, group="5:pids:/pods\n4:hugetlb,memory:/pods/old\n0::/\n")
    for name, most, used, cache in (("pods/old", 100, 90, 20), ("pods", (1 << 63) - 4096, 999, 0)):
        directory = cgroups / "memory" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "memory.limit_in_bytes").write_text(f"{most}\n")
        (directory / "memory.usage_in_bytes").write_text(f"{used}\n")
        (directory / "memory.stat").write_text(f"inactive_file 1\ntotal_inactive_file {cache}\n")
    assert free_part(None, proc, cgroups) == pytest.approx(0.3)


def test_a_container_of_version_1_finds_its_own_group_at_the_root(tmp_path: Path) -> None:
    proc, cgroups = _system(tmp_path, group="4:memory:/docker/not-seen-in-here\n")
    (cgroups / "memory").mkdir()
    (cgroups / "memory" / "memory.limit_in_bytes").write_text("100\n")
    (cgroups / "memory" / "memory.usage_in_bytes").write_text("80\n")
    assert free_part(None, proc, cgroups) == pytest.approx(0.2)


@pytest.mark.parametrize("group", ["", "4:memory:/old\n"])
def test_the_machine_decides_if_there_is_no_group(tmp_path: Path, group: str) -> None:
    proc, cgroups = _system(tmp_path, available=40, group=group)
    assert free_part(None, proc, cgroups) == 0.04


def test_nothing_is_short_if_nothing_can_be_read(tmp_path: Path) -> None:
    assert free_part(None, tmp_path / "none", tmp_path / "none") == 1.0


def test_this_machine_has_memory_left(tmp_path: Path) -> None:
    assert 0 < free_part() <= 1


def test_a_limit_of_its_own_counts_what_is_no_files(tmp_path: Path) -> None:
    proc, cgroups = _system(tmp_path)
    (proc / "self" / "status").write_text("VmData: 7 kB\nRssAnon: 60 kB\nRssFile: 500 kB\nRssShmem: 20 kB\n")
    assert free_part(100 * 1024, proc, cgroups) == pytest.approx(0.2)
    assert free_part(50 * 1024, proc, cgroups) == 0.0
    assert data_size(proc) == 7 * 1024
