"""Private copies of libraries compiled on the spot, loaded: what their symbols then bind to."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from interpool.native import provision
from interpool.native.errors import ProvisioningError
from interpool.native.provision.elf import DT_NEEDED, SharedObject

COMPILER = shutil.which("c++") or shutil.which("g++")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

# The shape of an inline function's static variable, as of pybind11's or torch's internals.
COUNTER = """
inline int &counter() { static int value = 0; return value; }
extern "C" int count() { return ++counter(); }
extern "C" void *PyInit_counting() { return nullptr; }
"""

INTERPOSER = provision.environment.interposer_path


@pytest.fixture(autouse=True)
def no_interposer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERPOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(provision.environment, "interposer_path", lambda: tmp_path / "none")


def build(target: Path, source: str, *flags: str) -> str:
    assert COMPILER
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [COMPILER, "-shared", "-fPIC", "-o", str(target), "-x", "c++", "-", "-x", "none", *flags]
    subprocess.run(command, input=source, text=True, check=True)
    return str(target)


def interpose(path: Path, source: str, monkeypatch: pytest.MonkeyPatch, name: str = "answer") -> str:
    """Build an interposer of that name, and let provisioning know it."""
    flags = ["-Wl,-soname,libinterpool_interpose.so", *([f"-Wl,--defsym=ip_{name}={name}"] if name else [])]
    built = build(path / "libinterpool_interpose.so", source, *flags)
    monkeypatch.setattr(provision.environment, "interposer_path", lambda: Path(built))
    return built


def ask(interposer: str, path: str, preload: str = "") -> int:
    """``ask()`` of a private copy, in a process that has loaded no other interposer."""
    program = "import ctypes, sys; print([ctypes.CDLL(path) for path in sys.argv[1:]][-1].ask())"
    command = [sys.executable, "-c", program, interposer, *provision.private_copy(path, 0)]
    environment = {**os.environ, "LD_PRELOAD": preload}
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


# Slots of this process that no pool will have: libraries once loaded are found again by SONAME.
FIRST_SLOT = 9000


def load(path: str, slot: int) -> ctypes.CDLL:
    return [ctypes.CDLL(copy) for copy in provision.private_copy(path, FIRST_SLOT + slot)][-1]


def strings(path: str, tag: int) -> list[str]:
    with SharedObject(path) as library:
        return library.strings_of(tag)


def test_two_slots_hold_two_libpythons() -> None:
    zero, one = (ctypes.CDLL(provision.libpython_copy(FIRST_SLOT + slot)) for slot in (0, 1))
    places = {ctypes.cast(copy.ip_Py_GetVersion, ctypes.c_void_p).value for copy in (zero, one)}
    places.add(ctypes.cast(ctypes.pythonapi.Py_GetVersion, ctypes.c_void_p).value)
    assert len(places) == 3
    assert not hasattr(zero, "Py_GetVersion")


def test_unpatched_copies_share_a_unique_symbol(tmp_path: Path) -> None:
    """The control of the next test: this is what would leak between interpreters."""
    original = build(tmp_path / "_counting.so", COUNTER)
    other = str(shutil.copy(original, tmp_path / "_other.so"))
    assert [ctypes.CDLL(original).count(), ctypes.CDLL(other).count()] == [1, 2]


def test_private_copies_share_no_unique_symbol(tmp_path: Path) -> None:
    original = build(tmp_path / "_counting.so", COUNTER)
    assert [load(original, 0).count(), load(original, 0).count(), load(original, 1).count()] == [1, 2, 1]


def test_a_library_between_two_private_ones_is_private_too(tmp_path: Path) -> None:
    inner = build(tmp_path / "libs/libinner.so", COUNTER, "-Wl,-soname,libinner.so")
    rpath = "-Wl,-rpath,$ORIGIN"
    middle = 'extern "C" int count(); extern "C" int twice() { count(); return count(); }'
    build(tmp_path / "libs/libmiddle.so", middle, inner, "-Wl,-soname,libmiddle.so", rpath)
    outer = 'extern "C" int twice(); extern "C" int outer() { return twice(); }'
    path = build(tmp_path / "_outer.so", outer, str(tmp_path / "libs/libmiddle.so"), f"{rpath}/libs")
    names = [os.path.basename(copy) for copy in provision.private_copy(path, 0)]
    assert names == [provision.libpython_path().name, "libinner.so", "libmiddle.so", "_outer.so"]
    assert [load(path, 0).outer(), load(path, 1).outer(), load(path, 0).outer()] == [2, 2, 4]


def test_libraries_of_a_wheel_find_each_other_if_only_their_extension_knows_their_folder(
    tmp_path: Path,
) -> None:
    inner = build(tmp_path / "user.libs/libinner.so", COUNTER, "-Wl,-soname,libinner.so")
    middle = 'extern "C" int count(); extern "C" int twice() { count(); return count(); }'
    build(tmp_path / "user.libs/libmiddle.so", middle, inner, "-Wl,-soname,libmiddle.so")
    outer = 'extern "C" int twice(); extern "C" int outer() { return twice(); }'
    rpath = ("-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/user.libs")
    path = build(tmp_path / "_outer.so", outer, str(tmp_path / "user.libs/libmiddle.so"), *rpath)
    names = [os.path.basename(copy) for copy in provision.private_copy(path, 0)]
    assert names == [provision.libpython_path().name, "libinner.so", "libmiddle.so", "_outer.so"]
    assert [load(path, 0).outer(), load(path, 1).outer(), load(path, 0).outer()] == [2, 2, 4]


USER = 'extern "C" { int answer(); int ask() { return answer(); } void *PyInit_user() { return nullptr; } }'


def test_an_importer_of_an_interposed_name_gets_the_interposers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = build(tmp_path / "libstock.so", 'extern "C" int answer() { return 1; }')
    user = build(tmp_path / "_user.so", USER, stock)
    interposer = interpose(tmp_path, 'extern "C" int answer() { return 2; }', monkeypatch)
    assert ask(interposer, user) == 2
    needed = strings(provision.private_copy(user, 0)[-1], DT_NEEDED)
    assert needed[0] == "libinterpool_interpose.so"
    assert re.fullmatch(r"ipslot0000-[0-9a-f]{8}-libpython.*", needed[1])


PARTS = """
extern "C" {
const char *Py_GetVersion() { return "of a Python of its own"; }
const char *ask() { return Py_GetVersion(); }
void *PyInit_parts() { return nullptr; }
}
"""


def test_an_extension_that_was_linked_with_parts_of_a_python_uses_the_running_ones(tmp_path: Path) -> None:
    path = build(tmp_path / "_parts.so", PARTS)
    copies = provision.private_copy(path, 0)
    program = (
        "import ctypes, sys\nfor path in sys.argv[1:]: ask = getattr(ctypes.CDLL(path), 'ask', None)\n"
        "ask.restype = ctypes.c_char_p; print(ask().decode())"
    )

    def ask(*paths: str) -> str:
        command = [sys.executable, "-c", program, *paths]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert ask(path) == sys.version  # as everywhere: the process's own come first
    assert ask(*copies) == sys.version


def test_an_extension_that_is_called_as_one_of_pythons_own_keeps_its_init_function(tmp_path: Path) -> None:
    path = build(tmp_path / "_io.so", 'extern "C" int PyInit__io() { return 42; }')
    program = "import ctypes, sys; print([ctypes.CDLL(path) for path in sys.argv[1:]][-1].PyInit__io())"
    command = [sys.executable, "-c", program, *provision.private_copy(path, 0)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "42\n"


def test_an_extension_that_is_bound_to_another_python_is_refused_by_name(tmp_path: Path) -> None:
    other = build(tmp_path / "libpython3.9.so.1.0", "", "-Wl,-soname,libpython3.9.so.1.0")
    path = build(tmp_path / "_other.so", COUNTER, "-Wl,--no-as-needed", other)
    with pytest.raises(
        ProvisioningError, match=r"_other\.so cannot be loaded: libpython3\.9.*install a build"
    ):
        provision.private_copy(path, 0)


def test_torch_needs_the_interposer_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_ZN5torch6detail19getTorchApiFunctionERKN3c1014OperatorHandleE"
    interpose(tmp_path, f'extern "C" void *{name}() {{ return nullptr; }}', monkeypatch, name)
    torch = next(Path(str(distribution("torch").locate_file("torch"))).glob("_C.cpython-*.so"))
    copies = provision.private_copy(str(torch), 0)
    for copy in copies[1:]:
        assert strings(copy, DT_NEEDED)[0] == "libinterpool_interpose.so"
    with SharedObject(copies[1]) as library:
        names = {symbol.name: symbol.defined for symbol in library.symbols()}
        assert names[f"ip_{name}".encode()] is False
        assert name.encode() not in names


@pytest.mark.long
def test_nothing_that_a_copy_has_made_is_destroyed_at_the_process_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of its interpreter may still be at work."""
    monkeypatch.setattr(provision.environment, "interposer_path", INTERPOSER)
    source = """
    #include <cstdio>
    #include <cstdlib>
    struct Told { ~Told() { std::puts("destroyed"); } } told;
    extern "C" void *PyInit__told() { return nullptr; }
    const int registered = std::atexit([] { std::puts("called"); });
    """
    path = build(tmp_path / "_told.so", source)
    program = "import ctypes, sys, torch; libraries = [ctypes.CDLL(path) for path in sys.argv[1:]]"

    def said(*paths: str) -> str:
        command = [sys.executable, "-c", program, *paths]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said(path) == "called\ndestroyed\n"
    assert said(str(INTERPOSER()), *provision.private_copy(path, 0)) == ""


def test_a_definition_in_the_programs_global_scope_does_not_come_before_the_interposers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = build(tmp_path / "libstock.so", 'extern "C" int answer() { return 1; }')
    user = build(tmp_path / "_user.so", USER, stock)
    interposer = interpose(tmp_path, 'extern "C" int answer() { return 2; }', monkeypatch)
    assert ask(interposer, user, preload=stock) == 2


def test_a_definer_of_an_interposed_name_gets_the_interposers_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = build(tmp_path / "_own.so", 'extern "C" int answer() { return 1; }' + USER)
    interposer = interpose(tmp_path, 'extern "C" int answer() { return 2; }', monkeypatch)
    assert ctypes.CDLL(own).ask() == 1
    assert ask(interposer, own) == 2
