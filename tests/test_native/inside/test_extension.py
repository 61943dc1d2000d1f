"""A user's own compiled code: an extension built against torch, and libraries opened through ctypes."""

from __future__ import annotations

import ctypes
import os
import sysconfig
from pathlib import Path

import pytest
from compile import build, python_headers
from interpool_testing import Code, every_interpreter, printed, together
from paths import EXTENSIONS

from interpool.native import InterpreterManager, InterpreterSession
from interpool.native.errors import RemoteError
from interpool.native.provision import libpython_path

pytestmark = pytest.mark.long

NAME = "scaled_extension"


@pytest.fixture(scope="module")
def scaled() -> Path:
    return build(EXTENSIONS / "scaled.cpp", NAME + sysconfig.get_config_var("EXT_SUFFIX"), with_torch=True)


@pytest.fixture(scope="module")
def plain() -> Path:
    return build(EXTENSIONS / "plain.c", "libplain.so", with_torch=False)


USE = """
import sys, torch

def load(how, path):
    if how == "import":
        folder, _, _ = path.rpartition("/")
        if folder not in sys.path:
            sys.path.append(folder)
        import scaled_extension
    else:
        torch.ops.load_library(path)

def scale(value, factor):
    return torch.ops.interpool_scaled.scale(torch.full((2,), value), factor).tolist()

def scale_often(value, factor, times):
    return sum(scale(value, factor) == [value * factor] * 2 for _ in range(times))

def composite():
    x = torch.ones(2, requires_grad=True)
    torch.ops.interpool_scaled.composite(x).sum().backward()
    return x.grad.tolist()

def meta():
    return tuple(torch.ops.interpool_scaled.scale(torch.empty(3, 5, device="meta"), 2.0).shape)

def count(*steps):
    counter = torch.classes.interpool_scaled.Counter(10)
    return [counter.add(step) for step in steps]

def script():
    source = "def function(x: Tensor, k: float):\\n    return torch.ops.interpool_scaled.scale(x, k)\\n"
    return torch.jit.CompilationUnit(source).function(torch.ones(2), 3.0).tolist()
"""


def test_operators_and_classes_of_an_extension_work_in_every_interpreter_at_once(
    manager: InterpreterManager, scaled: Path
) -> None:
    with every_interpreter(manager) as sessions:
        codes = [Code(session, USE) for session in sessions]
        hows = ["import", "load_library"] * (len(codes) // 2)
        together(
            [
                lambda code=code, how=how: code["load"](how, str(scaled))
                for code, how in zip(codes, hows, strict=True)
            ]
        )  # type: ignore[misc]
        counts = together([lambda code=code: code.call("scale_often", 2.0, 3.0, 100) for code in codes])  # type: ignore[misc]
        assert counts == [100] * len(codes)
        for code in codes:
            assert code.call("composite") == [3, 3]
            assert code.call("meta") == (3, 5)
            assert code.call("count", 1, 2) == [11, 13]
            assert code.call("script") == [3, 3]


def test_the_python_side_of_an_extension_is_each_interpreters_own(
    manager: InterpreterManager, scaled: Path
) -> None:
    with every_interpreter(manager, 2) as sessions:
        for session in sessions:
            Code(session, USE)["load"]("import", str(scaled))
        for i, session in enumerate(sessions):
            session.global_(NAME, "remember")([i])
        assert [session.global_(NAME, "recall")().to_value() for session in sessions] == [[0], [1]]
        one, other = (session.global_(NAME, "calls") for session in sessions)
        first, second = one().to_value(), other().to_value()
        for _ in range(3):
            one()
        assert one().to_value() == first + 4
        assert other().to_value() == second + 1
        # Users look for data files beside it.
        assert sessions[0].global_(NAME, "__file__").to_value() == str(scaled)


def test_an_extension_that_the_host_has_loaded_loads_in_an_interpreter(scaled: Path) -> None:
    said = printed(
        """
        import sys
        import torch
        from interpool import InterpreterManager
        from interpool_testing import Code

        path, source = sys.argv[1:]
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            code = Code(session, source)
            torch.ops.load_library(path)
            code["load"]("load_library", path)
            print(torch.ops.interpool_scaled.scale(torch.ones(2), 4.0).tolist(), code.call("scale", 1.0, 5.0))
            print(torch.classes.interpool_scaled.Counter(1).add(1), code.call("count", 1))
            print(torch.ops.interpool_scaled.composite(torch.ones(2)).tolist(), code.call("composite"))
        """,
        str(scaled),
        USE,
    )
    assert said == "[4.0, 4.0] [5.0, 5.0]\n2 [11]\n[3.0, 3.0] [3.0, 3.0]\n"


def test_an_extension_that_interpreters_have_loaded_loads_in_the_host(scaled: Path) -> None:
    said = printed(
        """
        import sys
        import torch
        from interpool import InterpreterManager
        from interpool_testing import Code, every_interpreter

        path, source = sys.argv[1:]
        with InterpreterManager(2) as manager, every_interpreter(manager) as sessions:
            one, other = (Code(session, source) for session in sessions)
            one["load"]("load_library", path)
            torch.ops.load_library(path)
            other["load"]("load_library", path)
            print(torch.ops.interpool_scaled.scale(torch.ones(2), 4.0).tolist())
            x = torch.ones(2, requires_grad=True)
            torch.ops.interpool_scaled.composite(x).sum().backward()
            print(x.grad.tolist(), tuple(torch.ops.interpool_scaled.scale(x.to("meta"), 1.0).shape))
            print(torch.classes.interpool_scaled.Counter(1).add(1))
            for code in (one, other):
                print(code.call("scale", 1.0, 5.0), code.call("composite"), code.call("count", 1))
        print(torch.ops.interpool_scaled.scale(torch.ones(2), 6.0).tolist())
        """,
        str(scaled),
        USE,
    )
    host = "[4.0, 4.0]\n[3.0, 3.0] (2,)\n2\n"
    inside = "[5.0, 5.0] [3.0, 3.0] [11]\n"
    assert said == host + inside * 2 + "[6.0, 6.0]\n"


PLAIN = """
import ctypes

def add(path, a, b):
    return ctypes.CDLL(path).plain_add(a, b)

def called_back(path, k):
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda x: x * k)
    return ctypes.CDLL(path).plain_apply(callback, 7)

def pythonapi():
    ctypes.pythonapi.PyLong_FromLong.restype = ctypes.py_object
    ctypes.pythonapi.PyUnicode_FromFormat.restype = ctypes.py_object
    ctypes.pythonapi.Py_IncRef.argtypes = [ctypes.py_object]
    import sys
    thing = object()
    before = sys.getrefcount(thing)
    ctypes.pythonapi.Py_IncRef(thing)
    return (
        ctypes.pythonapi.PyLong_FromLong(41),
        ctypes.pythonapi.PyUnicode_FromFormat(b"%d of ours", ctypes.c_int(3)),
        sys.getrefcount(thing) - before,
        ctypes.pythonapi.PyErr_CheckSignals(),
    )

def own_none():
    function = ctypes.pythonapi.Py_BuildValue
    function.restype = ctypes.c_void_p
    return function(b"") == id(None)

def libc():
    return ctypes.CDLL(None).getpid()

def by_any_way(libpython):
    found = []
    for library in (ctypes.PyDLL(None), ctypes.PyDLL(libpython), ctypes.PyDLL(libpython.rpartition("/")[2])):
        function = library.Py_BuildValue
        function.restype = ctypes.c_void_p
        found.append((function(b"") == id(None), function.__name__))
    return found
"""


def test_a_library_without_python_is_shared_through_ctypes(manager: InterpreterManager, plain: Path) -> None:
    with every_interpreter(manager, 2) as sessions:
        codes = [Code(session, PLAIN) for session in sessions]
        assert [code.call("add", str(plain), 2, 3) for code in codes] == [5, 5]
        assert together(
            [
                lambda code=code, k=k: code.call("called_back", str(plain), k)
                for k, code in enumerate(codes, 2)
            ]  # type: ignore[misc]
        ) == [14, 21]
    maps = Path("/proc/self/maps").read_text()
    files = {line.split(maxsplit=5)[5] for line in maps.splitlines() if "libplain.so" in line}
    assert files == {str(plain)}


def test_ctypes_reaches_this_interpreters_own_python(manager: InterpreterManager) -> None:
    with every_interpreter(manager, 2) as sessions:
        for session in sessions:
            code = Code(session, PLAIN)
            assert code.call("pythonapi") == (41, "3 of ours", 1, 0)
            assert code.call("own_none") is True
            assert code.call("libc") == os.getpid()


def test_no_way_of_ctypes_leads_to_the_hosts_python(session: InterpreterSession) -> None:
    code = Code(session, PLAIN)
    assert code.call("by_any_way", str(libpython_path())) == [(True, "Py_BuildValue")] * 3


def test_cffi_finds_this_interpreters_own_python(session: InterpreterSession) -> None:
    source = """
        import cffi
        def flag():
            ffi = cffi.FFI()
            ffi.cdef("extern int Py_NoUserSiteDirectory; int Py_IsInitialized(void); int abs(int);")
            library = ffi.dlopen(None)
            return library.Py_NoUserSiteDirectory, library.Py_IsInitialized(), library.abs(-3)
    """
    assert Code(session, source).call("flag") == (1, 1, 3)


STATE = """
import ctypes

def add(path, by):
    library = ctypes.PyDLL(path)
    library.state_add.restype = ctypes.py_object
    return library.state_add(by)
"""


def test_a_library_that_uses_python_has_its_state_in_each_interpreter(manager: InterpreterManager) -> None:
    state = build(EXTENSIONS / "state.c", "libstate.so", with_torch=False, options=(python_headers(),))
    with every_interpreter(manager, 2) as sessions:
        one, other = (Code(session, STATE) for session in sessions)
        first = one.call("add", str(state), 0), other.call("add", str(state), 0)
        one.call("add", str(state), 5)
        other.call("add", str(state), 70)
        assert one.call("add", str(state), 0) == first[0] + 5
        assert other.call("add", str(state), 0) == first[1] + 70
    host = ctypes.PyDLL(str(state)).state_add
    host.restype = ctypes.py_object
    assert host(1) == 1


def test_an_extension_that_does_not_load_is_an_importerror(
    session: InterpreterSession, tmp_path: Path
) -> None:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    (tmp_path / f"broken_extension{suffix}").write_bytes(b"\x7fELF but not really")
    session.global_("sys", "path").attr("append")(str(tmp_path))
    with pytest.raises(RemoteError) as caught:
        session.global_("broken_extension", "x")
    assert caught.value.type_name == "ImportError"
    assert "broken_extension" in caught.value.message
