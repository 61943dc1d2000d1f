"""Libraries that are private although they use no Python, as one GIL used to keep threads apart in them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from compile import build
from interpool_testing import Code, every_interpreter
from paths import EXTENSIONS

from interpool.native import InterpreterManager
from interpool.native.provision import private_copy
from interpool.native.provision.unshared import relies_on_one_gil


@pytest.mark.parametrize(
    "path",
    [
        "/site/h5py.libs/libhdf5-9e18f0c6.so.320.0.0",
        "/site/pymupdf/libmupdfcpp.so.28.5",
        "/site/llvmlite/binding/libllvmlite.so",
        "/site/pyarrow/libarrow_compute.so.2600",
    ],
)
def test_libraries_that_a_wheel_brings_for_its_modules_are_private(path: str) -> None:
    assert relies_on_one_gil(path)


@pytest.mark.parametrize(
    "path",
    [
        "/site/numpy.libs/libscipy_openblas64_-fdde5778.so",
        "/site/torch/lib/libtorch_cpu.so",
        "/usr/lib/x86_64-linux-gnu/libhdf5_serial.so.103",
    ],
)
def test_libraries_for_many_threads_and_those_of_the_system_are_shared(path: str) -> None:
    assert not relies_on_one_gil(path)


def test_interpreters_have_copies_of_it(manager: InterpreterManager, tmp_path: Path) -> None:
    folder = tmp_path / "counting.libs"
    folder.mkdir()
    stock = build(EXTENSIONS / "lookup.c", "liblookup.so", with_torch=False)
    wheels, systems = folder / "liblookup.so", tmp_path / "liblookup.so"
    for path in (wheels, systems):
        shutil.copy(stock, path)
    assert private_copy(str(systems), 1) == [str(systems)]
    assert private_copy(str(wheels), 1)[-1] != private_copy(str(wheels), 2)[-1]
    source = """
    import ctypes
    def count(path):
        return ctypes.CDLL(path).lookup_count()
    """
    with every_interpreter(manager, 2) as sessions:
        codes = [Code(session, source) for session in sessions]
        assert [code.call("count", str(wheels)) for code in codes for _ in range(2)] == [1, 2, 1, 2]
        assert [code.call("count", str(systems)) for code in codes] == [1, 2]


def test_compiled_code_finds_its_own_interpreters_python(manager: InterpreterManager, tmp_path: Path) -> None:
    library = tmp_path / "libllvmlite.so"
    shutil.copy(build(EXTENSIONS / "lookup.c", "liblookup.so", with_torch=False), library)
    source = """
    import ctypes
    def finds_own(path):
        library = ctypes.CDLL(path)
        library.lookup_find.restype = ctypes.c_void_p
        own = ctypes.cast(ctypes.pythonapi.PyLong_FromLong, ctypes.c_void_p).value
        return library.lookup_find(b"PyLong_FromLong") == own
    """
    with every_interpreter(manager, 2) as sessions:
        assert [Code(session, source).call("finds_own", str(library)) for session in sessions] == [True, True]
