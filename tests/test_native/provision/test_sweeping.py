"""Sets that were unused for long leave the cache, and sooner if it is too large; what is in use stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import distribution
from pathlib import Path

import pytest
from interpool_testing import printed

from interpool.native import provision
from interpool.native.errors import ProvisioningError
from interpool.native.provision import sweeping
from interpool.native.provision.cache_limits import DAY_S, Limits, limits
from interpool.native.provision.holding import is_held
from interpool.native.provision.inventory import inventory
from interpool.native.provision.sweeping import clean, disk_bytes, keep_for, sweep

SITE = Path(str(distribution("numpy").locate_file("")))
ORIGINAL = next(SITE.glob("numpy/random/_bounded_integers.*.so"))
DAYS_14 = 14 * DAY_S


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cold cache, of which this process holds nothing afterwards."""
    root = tmp_path / "cache"
    monkeypatch.setenv("INTERPOOL_CACHE", str(root))
    yield root
    give_up()


@pytest.fixture
def extension(tmp_path: Path) -> Path:
    return Path(shutil.copy2(ORIGINAL, tmp_path / "_example.so"))


def give_up() -> None:
    """As if the process that has used the cache so far had ended."""
    provision.current_environment().holder.release()
    provision._copies.cache_clear()


def age(*entries: Path, days: float = 15) -> None:
    for entry in entries:
        os.utime(entry, (time.time() - days * DAY_S,) * 2)


def is_of_today(entry: Path) -> bool:
    return time.time() - entry.stat().st_mtime < DAY_S


def the_set(cache: Path) -> Path:
    (found,) = sweeping.sets(cache)
    return found


def age_all(cache: Path) -> None:
    directory = the_set(cache)
    age(directory, *directory.glob("slots/*"), *directory.glob("files/*"))


USER = """
import sys
from interpool.native import provision
print(*provision.private_copy(sys.argv[1], int(sys.argv[2])), sep="\\n", flush=True)
sys.stdin.read()
"""


@contextmanager
def user(extension: Path, slot: int = 0) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that uses an extension's copies until its standard input ends."""
    command = [sys.executable, "-c", USER, str(extension), str(slot)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, [process.stdout.readline().strip() for _ in range(2)]
        finally:
            process.kill()


def test_a_set_that_was_unused_for_the_time_goes_and_another_stays(cache: Path, extension: Path) -> None:
    provision.private_copy(str(extension), 0)
    give_up()
    used = the_set(cache)
    unused = Path(shutil.copytree(used, cache / ("0" * 16)))
    age(unused)
    (cache / "home").mkdir()
    assert sweep(cache, 16 * DAY_S) == []
    assert sweep(cache, DAYS_14) == [unused]
    assert sorted(path.name for path in cache.iterdir()) == sorted([used.name, "home"])


def test_a_set_that_a_living_process_uses_stays_until_its_end_of_any_kind(
    cache: Path, extension: Path
) -> None:
    with user(extension) as (process, copies):
        age_all(cache)
        directory = the_set(cache)
        assert is_held(directory)
        assert sweep(cache, DAYS_14) == []
        assert sweep(cache, 0) == []
        assert all(map(os.path.exists, copies))
        # It is used today, for as long as it lives: its end does not make it old.
        parts = [*directory.glob("slots/*"), *directory.glob("files/*")]
        assert all(map(is_of_today, (directory, *parts)))
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not is_held(directory)
    assert sweep(cache, DAYS_14) == []
    assert sweep(cache, 0) == [directory]
    assert list(cache.iterdir()) == []


def test_copies_of_a_file_that_is_gone_go_unless_a_process_uses_them(cache: Path, extension: Path) -> None:
    with user(extension) as (_, copies):
        extension.unlink()
        assert sweep(cache, DAYS_14) == []
        assert all(map(os.path.exists, copies))
    (removed,) = sweep(cache, DAYS_14)
    assert removed.parent.name == "files"
    assert [os.path.exists(path) for path in copies] == [True, False]


STARTS = """
import os, sys
from pathlib import Path
from interpool.native import provision
root, extension = Path(os.environ["INTERPOOL_CACHE"]), sys.argv[1]
for turn in range(4):
    files = [Path(path) for slot in (0, 1) for path in provision.private_copy(extension, slot)]
    sizes = [path.stat().st_size for path in files]  # as the dynamic linker would open them
    assert min(sizes) > 0 and sizes[:2] == sizes[2:], sizes
    assert all(path.is_file() for path in files)
    provision.current_environment().holder.release()
    provision._copies.cache_clear()
    provision.environment._environment.cache_clear()
print("done")
"""
SWEEPS = """
import os, select, sys
from pathlib import Path
from interpool.native.provision.sweeping import sweep
root, count = Path(os.environ["INTERPOOL_CACHE"]), 0
while not select.select([sys.stdin], [], [], 0.001)[0]:
    count += len(sweep(root, 0))
print(count)
"""


def test_processes_that_sweep_at_once_take_nothing_from_those_that_start_beside_them(
    cache: Path, extension: Path
) -> None:
    def start(stack: ExitStack, source: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", source, *arguments]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        return process

    with ExitStack() as stack:
        sweeping_ones = [start(stack, SWEEPS) for _ in range(2)]
        starting = [start(stack, STARTS, str(extension)) for _ in range(2)]
        said = [process.communicate(timeout=200) for process in starting]
        counts = [process.communicate("end", timeout=60) for process in sweeping_ones]
    assert said == [("done\n", "")] * 2
    assert [err for _, err in counts] == ["", ""]
    assert sum(int(out) for out, _ in counts) > 0
    sweep(cache, 0)
    assert list(cache.iterdir()) == []


def test_copies_that_were_prepared_stay_as_long_as_their_file_names_them(
    cache: Path, extension: Path, tmp_path: Path
) -> None:
    copies = provision.private_copy(str(extension), 0)
    file = tmp_path / "prepared.txt"
    file.write_text("\n".join(copies))
    provision.keep_for(file)
    keep_for(the_set(cache), file)  # once is enough
    give_up()
    age_all(cache)
    sweep(cache, 0)
    assert all(map(os.path.exists, copies))
    assert [each.prepared for each in inventory(cache)] == [(str(file),)]
    file.write_text("others")
    assert [each.prepared for each in inventory(cache)] == [()]
    assert len(sweep(cache, DAYS_14)) == 1


def test_copies_that_were_not_prepared_are_removed_from_a_set_that_was(
    cache: Path, extension: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copy2(ORIGINAL, tmp_path / "_other.so"))
    prepared = provision.private_copy(str(extension), 0)
    file = tmp_path / "prepared.txt"
    file.write_text("copy\t0\t" + "\t".join([str(extension), *prepared]) + "\n")
    provision.keep_for(file)
    unprepared = [provision.private_copy(str(each), slot)[1] for each, slot in [(other, 0), (extension, 1)]]
    give_up()
    age_all(cache)
    gone = sweep(cache, DAYS_14)
    assert all(map(os.path.exists, prepared))
    assert not any(map(os.path.exists, unprepared))
    assert "0001" in {path.name for path in gone}


def test_all_copies_stay_while_the_file_that_names_some_cannot_be_read(
    cache: Path, extension: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provision.private_copy(str(extension), 0)
    file = tmp_path / "prepared.txt"
    file.write_text("a file of another user")
    provision.keep_for(file)
    give_up()
    age_all(cache)

    def unreadable(path: Path, **_: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", unreadable)
        assert sweep(cache, DAYS_14) == []


def test_a_note_that_cannot_be_made_says_what_to_do(cache: Path) -> None:
    with pytest.raises(ProvisioningError, match=r"File name too long\..*set INTERPOOL_CACHE to another"):
        keep_for(cache, Path("/", *["x" * 200] * 30))


@pytest.fixture
def large(cache: Path) -> list[Path]:
    """Three sets of 3 MB each that are not in use, unused for 10, 5 and 0 days."""
    made = []
    for name, days in (("a", 10), ("b", 5), ("c", 0)):
        directory = cache / (name * 16)
        (directory / "locks").mkdir(parents=True)
        (directory / "copy.so").write_bytes(b"x" * 3_000_000)
        age(directory, days=days)
        made.append(directory)
    return made


@pytest.mark.parametrize(("megabytes", "left"), [(10, 3), (8, 2), (1, 1)])
def test_the_longest_unused_sets_go_until_the_cache_is_small_enough(
    large: list[Path], megabytes: int, left: int
) -> None:
    root = large[0].parent
    gone = clean(root, Limits(DAYS_14, megabytes * 1e6))
    assert (gone, sweeping.sets(root)) == (large[:-left], large[-left:])
    assert clean(root, Limits(DAYS_14, megabytes * 1e6)) == []


def test_unused_parts_of_a_set_in_use_that_is_too_large_go(
    cache: Path, extension: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copy2(ORIGINAL, tmp_path / "_other.so"))
    for slot in range(2):
        provision.private_copy(str(extension), slot)
        provision.private_copy(str(other), slot)
    size = disk_bytes(cache)
    give_up()
    age_all(cache)
    kept = provision.private_copy(str(extension), 1)
    assert clean(cache, Limits(size=size + 1e6)) == []
    gone = clean(cache, Limits(size=size - 1))
    assert [path.name for path in gone if path.parent.name == "slots"] == ["0000"]
    assert disk_bytes(cache) < size / 1.5
    assert all(map(os.path.exists, kept))
    assert clean(cache, Limits(size=0)) == []  # all that is left is in use


def test_limits_are_14_days_and_10_gigabytes_and_0_sets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits() == Limits(DAYS_14, 10e9)
    monkeypatch.setenv("INTERPOOL_CACHE_DAYS", "0.5")
    monkeypatch.setenv("INTERPOOL_CACHE_GB", "")  # as if it were not set
    assert limits() == Limits(DAY_S / 2, 10e9)
    monkeypatch.setenv("INTERPOOL_CACHE_GB", "0")
    assert limits() == Limits(DAY_S / 2)
    monkeypatch.setenv("INTERPOOL_CACHE_DAYS", "0")
    assert limits() == Limits()
    monkeypatch.setattr(sweeping.threading, "Timer", _no_timer)
    provision.sweep_later()


@pytest.mark.parametrize("given", ["soon", "inf"])
@pytest.mark.parametrize(
    ("setting", "what"), [("INTERPOOL_CACHE_DAYS", "days"), ("INTERPOOL_CACHE_GB", "gigabytes")]
)
def test_a_limit_that_is_no_number_is_named_and_nothing_is_swept(
    setting: str, what: str, given: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(setting, given)
    with pytest.raises(ProvisioningError, match=f"{setting} must be a number of {what}.*, not '{given}'"):
        limits()
    monkeypatch.setattr(sweeping.threading, "Timer", _no_timer)
    provision.sweep_later()
    (record,) = caplog.records
    assert record.levelname == "ERROR"


def _no_timer(*_: object) -> Callable[[], None]:
    raise AssertionError("a sweep was planned")


POOL = """
import sys
from pathlib import Path
from interpool.native.provision import sweeping
sweeping.DELAY_S = 0
from interpool.native import InterpreterManager
from waiting import wait_for
with InterpreterManager(1) as manager, manager.acquire_session() as session:
    torch = session.global_("importlib", "import_module")("torch")
    wait_for(lambda: not Path(sys.argv[1]).exists(), "the sweep")
    print(torch.attr("ones")(3).attr("sum")().attr("item")().to_value())
"""


@pytest.mark.long
def test_a_process_that_has_a_pool_sweeps_beside_it(cache: Path, extension: Path) -> None:
    unused = cache / ("0" * 16)
    (unused / "locks").mkdir(parents=True)
    age(unused)
    assert printed(POOL, str(unused)) == "3.0\n"
    assert len(sweeping.sets(cache)) == 1


def test_copies_that_were_prepared_stay_when_their_original_has_changed(
    cache: Path, extension: Path, tmp_path: Path
) -> None:
    copies = provision.private_copy(str(extension), 0)
    file = tmp_path / "prepared.txt"
    file.write_text("\n".join(copies))
    provision.keep_for(file)
    give_up()
    os.utime(extension, (1, 1))
    unprepared = provision.private_copy(str(extension), 0)[1]
    give_up()
    os.utime(extension, (3, 3))
    provision.private_copy(str(extension), 0)  # makes a template, and removes what is of no use any more
    assert all(map(os.path.exists, copies))
    assert not os.path.exists(unprepared)
    file.unlink()
    give_up()
    os.utime(extension, (2, 2))
    provision.private_copy(str(extension), 0)
    assert [os.path.exists(path) for path in copies] == [True, False]


@pytest.mark.long
def test_a_size_is_kept_without_an_age(large: list[Path]) -> None:
    age(large[0], days=100)
    root = large[0].parent
    assert clean(root, Limits()) == []
    assert clean(root, Limits(size=10e6)) == []
    assert clean(root, Limits(size=8e6)) == large[:1]
