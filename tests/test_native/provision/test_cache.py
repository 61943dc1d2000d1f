"""The cache of private copies: made once, whole, by one process at a time, and never stale."""

from __future__ import annotations

import errno
import fcntl
import functools
import multiprocessing
import os
import shutil
import time
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from waiting import NOT_STUCK_S

from interpool.native import provision
from interpool.native.diagnostics import doctor
from interpool.native.errors import ProvisioningError
from interpool.native.provision.store import cache_root, locked

if TYPE_CHECKING:
    from collections.abc import Iterator

SITE = Path(str(distribution("numpy").locate_file("")))
ORIGINAL = next(SITE.glob("numpy/random/_bounded_integers.*.so"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cold cache, and no memory of another."""
    root = tmp_path / "cache"
    monkeypatch.setenv("INTERPOOL_CACHE", str(root))
    return root


@pytest.fixture
def extension(tmp_path: Path) -> Path:
    """An extension module that a test may change."""
    return Path(shutil.copy2(ORIGINAL, tmp_path / "_example.so"))


@pytest.fixture
def forget(cache: Path) -> Iterator[object]:
    """Calling it makes this process know, and hold, no more than a new one."""

    def forget() -> None:
        provision.current_environment().holder.release()
        provision._copies.cache_clear()

    yield forget
    provision._copies.cache_clear()


def templates(cache: Path, name: str) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in cache.glob(f"*/files/*/{name}")}


def test_a_template_is_made_once_for_all_slots(
    cache: Path, extension: Path, forget: functools.partial[None]
) -> None:
    provision.private_copy(str(extension), 0)
    before = templates(cache, extension.name)
    assert len(before) == 1
    forget()
    provision.private_copy(str(extension), 1)
    assert templates(cache, extension.name) == before


def test_directories_are_for_their_owner_only(cache: Path, extension: Path) -> None:
    provision.private_copy(str(extension), 0)
    made = [cache, *(path for path in cache.rglob("*") if path.is_dir())]
    assert {oct(path.stat().st_mode & 0o777) for path in made} == {"0o700"}


def test_processes_starting_at_once_end_with_one_whole_cache(cache: Path, extension: Path) -> None:
    shared = str(next(SITE.glob("numpy/linalg/_umath_linalg.*.so")))
    jobs = [(path, slot) for slot in range(3) for path in (shared, str(extension)) for _ in range(4)]
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        answers = pool.starmap_async(provision.private_copy, jobs, chunksize=1).get(NOT_STUCK_S)
    assert answers == [provision.private_copy(*job) for job in jobs]
    assert not list(cache.rglob(".new-*"))
    assert len(templates(cache, extension.name)) == 1
    copies = [path.read_bytes() for path in sorted(cache.glob(f"*/slots/*/*/{extension.name}"))]
    assert len(copies) == 3
    assert len({copy.replace(b"ipslot000%d" % slot, b"") for slot, copy in enumerate(copies)}) == 1


def test_a_draft_left_by_a_killed_process_is_overwritten(cache: Path, extension: Path) -> None:
    copy = Path(provision.private_copy(str(extension), 0)[-1])
    whole = copy.read_bytes()
    copy.unlink()
    copy.with_name(f".new-{copy.name}").write_bytes(b"half")
    assert provision.private_copy(str(extension), 0)[-1] == str(copy)
    assert copy.read_bytes() == whole
    assert not list(cache.rglob(".new-*"))


def test_a_copy_cut_short_is_made_anew(cache: Path, extension: Path, forget: functools.partial[None]) -> None:
    copy = Path(provision.private_copy(str(extension), 0)[-1])
    whole = copy.read_bytes()
    copy.write_bytes(whole[:100])
    forget()
    provision.private_copy(str(extension), 0)
    assert copy.read_bytes() == whole


def test_a_damaged_record_is_written_anew(
    cache: Path, extension: Path, forget: functools.partial[None]
) -> None:
    before = provision.private_copy(str(extension), 0)
    for record in cache.rglob("record.json"):
        record.write_text("")
    forget()
    assert provision.private_copy(str(extension), 0) == before


def test_a_changed_file_is_patched_anew_and_the_old_copies_go(
    cache: Path, extension: Path, forget: functools.partial[None]
) -> None:
    old = Path(provision.private_copy(str(extension), 0)[-1])
    os.utime(extension, ns=(0, 1_000_000_000))
    new = Path(provision.private_copy(str(extension), 0)[-1])
    assert new != old
    assert new.name == old.name
    os.utime(extension, ns=(0, 2_000_000_000))
    forget()
    provision.private_copy(str(extension), 0)
    assert not old.exists()
    assert not new.exists()
    assert len(templates(cache, extension.name)) == 1


def test_a_cached_copy_is_found_without_tools_and_at_once(
    cache: Path, extension: Path, forget: functools.partial[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds() -> float:
        start = time.perf_counter()
        provision.private_copy(str(extension), 0)
        return time.perf_counter() - start

    made_in = seconds()
    expected = provision.private_copy(str(extension), 0)

    def no_tool(*_: object) -> None:
        raise AssertionError("called although everything is cached")

    monkeypatch.setattr(provision.patch, "make_template", no_tool)
    monkeypatch.setattr(provision.copies, "examine", no_tool)
    forget()
    assert provision.private_copy(str(extension), 0) == expected
    assert min(seconds() for _ in range(50)) < made_in / 20


def test_a_file_that_is_no_elf_is_named(cache: Path, tmp_path: Path) -> None:
    script = tmp_path / "_script.so"
    script.write_text("/* GNU ld script */ INPUT(libfoo.so.1)")
    with pytest.raises(ProvisioningError, match=rf"{script} is not an ELF file"):
        provision.private_copy(str(script), 0)


@pytest.mark.parametrize("size", [0, 4096])
def test_a_truncated_file_is_named(cache: Path, extension: Path, size: int) -> None:
    extension.write_bytes(extension.read_bytes()[:size])
    with pytest.raises(ProvisioningError, match=str(extension)):
        provision.private_copy(str(extension), 0)
    assert not list(cache.rglob("_example.so"))


def test_an_unusable_cache_says_what_to_do(
    extension: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_CACHE", str(extension / "below a file"))
    with pytest.raises(ProvisioningError, match=r"cannot write to the cache directory .*set INTERPOOL_CACHE"):
        provision.private_copy(str(extension), 0)


@pytest.mark.parametrize("variable", ["INTERPOOL_CACHE", "XDG_CACHE_HOME"])
def test_the_cache_of_a_user_without_a_home_is_in_no_directory(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """As in a container with the id of a user that it does not know, and without HOME."""
    monkeypatch.delenv("INTERPOOL_CACHE", raising=False)
    monkeypatch.setenv(variable, "~no-such-user/.cache")
    with pytest.raises(ProvisioningError, match=r"~no-such-user/\.cache .*Set INTERPOOL_CACHE"):
        cache_root()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_another_users_cache_is_not_trusted(cache: Path, extension: Path) -> None:
    cache.mkdir()
    os.chown(cache, 12345, 12345)
    with pytest.raises(ProvisioningError, match=r"belongs to user 12345"):
        provision.private_copy(str(extension), 0)


def test_a_cache_on_a_file_system_without_locks_is_refused_with_the_reason(
    cache: Path, extension: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ProvisioningError, match=r"No locks available\. .*set INTERPOOL_CACHE"):
        provision.private_copy(str(extension), 0)
    (check,) = [each for each in doctor.checks() if each.name == "cache"]
    assert not check.ok
    assert "No locks available" in check.detail


def break_cache(cache: Path) -> Path:
    """Have a file in the place of the environment's directory; gives where that is now."""
    (environment,) = (path for path in cache.iterdir() if path.is_dir())
    aside = cache.with_name("aside")
    environment.rename(aside)
    environment.touch()
    return aside


def mend_cache(cache: Path, aside: Path) -> None:
    (broken,) = cache.iterdir()
    broken.unlink()
    aside.rename(broken)


def test_copies_that_were_removed_are_made_again_for_the_next_slot(cache: Path, extension: Path) -> None:
    first = provision.private_copy(str(extension), 0)
    (environment,) = cache.iterdir()
    shutil.rmtree(environment)
    second = provision.private_copy(str(extension), 1)
    whole = [Path(path).read_bytes() for path in second]
    assert provision.private_copy(str(extension), 0) == first
    slots = (b"ipslot0000", b"ipslot0001")
    assert [Path(path).read_bytes().replace(*slots) for path in first] == whole
    assert all(path.startswith(f"{cache}/") for path in first + second)


def test_copies_are_in_memory_if_the_cache_cannot_be_written(
    cache: Path, extension: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = provision.private_copy(str(extension), 0)
    of_the_first = [Path(path).read_bytes() for path in first]
    aside = break_cache(cache)
    second = provision.private_copy(str(extension), 1)
    slots = (b"ipslot0001", b"ipslot0000")
    assert [Path(path).read_bytes().replace(*slots) for path in second] == of_the_first
    third = provision.private_copy(str(extension), 2)
    assert len({*first, *second, *third}) == 6
    # What has been loaded stays what it is: another file would be another library.
    assert provision.private_copy(str(extension), 0) == first
    mend_cache(cache, aside)
    assert provision.private_copy(str(extension), 1) == second
    fourth = provision.private_copy(str(extension), 3)
    assert all(path.startswith(f"{cache}/") for path in fourth)
    (error,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert error.startswith(f"cannot write to the cache directory {cache}")
    assert "set INTERPOOL_CACHE" in error


def test_copies_in_memory_are_no_files_for_other_processes(cache: Path, extension: Path) -> None:
    provision.private_copy(str(extension), 0)
    provision.require_files()
    break_cache(cache)
    provision.private_copy(str(extension), 1)
    with pytest.raises(ProvisioningError, match="in memory"):
        provision.require_files()


def test_a_full_disk_leaves_no_half_files(
    cache: Path, extension: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provision.private_copy(str(extension), 0)
    copy = provision.copies.copy_file

    def fill(source: Path, target: Path) -> None:
        if target.is_relative_to(cache):
            target.write_bytes(source.read_bytes()[:5000])
            raise OSError(errno.ENOSPC, "No space left on device")
        copy(source, target)

    monkeypatch.setattr(provision.copies, "copy_file", fill)
    held = provision.private_copy(str(extension), 1)
    assert not any(path.startswith(f"{cache}/") for path in held)
    assert not list(cache.glob("*/slots/0001/*/*"))


def test_another_build_of_one_size_and_time_is_patched_anew(
    cache: Path, extension: Path, forget: functools.partial[None]
) -> None:
    """Of one second, or where all files are given one time."""
    os.utime(extension, ns=(0, 1_000_000_000_000_000))
    first = Path(provision.private_copy(str(extension), 0)[-1]).read_bytes()
    build = bytearray(extension.read_bytes())
    build_id = build.index(b"\3\0\0\0GNU\0") + 8
    build[build_id] ^= 1
    extension.write_bytes(build)
    os.utime(extension, ns=(0, 1_000_000_000_000_000))
    forget()
    second = Path(provision.private_copy(str(extension), 0)[-1]).read_bytes()
    assert len(second) == len(first)
    assert second != first


def test_a_needed_object_turning_private_changes_the_verdict(cache: Path, tmp_path: Path) -> None:
    torch = SITE / "torch/_C.so"
    (tmp_path / "lib").mkdir()
    user = Path(shutil.copy2(next(SITE.glob("torch/_C.cpython-*.so")), tmp_path / torch.name))
    needed = tmp_path / "lib/libtorch_python.so"
    shutil.copy2(SITE / "torch/lib/libshm.so", needed)  # uses no Python
    assert len(provision.private_copy(str(user), 0)) == 2
    shutil.copy2(ORIGINAL, needed)
    first, second, third = provision.private_copy(str(user), 0)
    assert (Path(second).name, Path(third).name) == (needed.name, user.name)
    assert first == provision.libpython_copy(0)


def test_a_child_that_is_forked_while_a_lock_is_held_does_not_keep_it(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    with locked(tmp_path, "one"):
        child = os.fork()
        if child == 0:
            os.read(read_end, 1)
            os._exit(0)
    try:
        handle = os.open(tmp_path / "locks" / "one", os.O_RDWR)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
    finally:
        os.write(write_end, b".")
        os.waitpid(child, 0)
        os.close(read_end)
        os.close(write_end)
