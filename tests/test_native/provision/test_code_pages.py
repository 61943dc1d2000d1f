"""Private copies in memory: what is the same in all of them is there once."""

from __future__ import annotations

from pathlib import Path

import pytest
from interpool_testing import Code, assert_clean, every_interpreter, run_program, together
from mappings import mappings

from interpool.native import InterpreterManager, provision

ONE = """
from interpool import InterpreterManager
with InterpreterManager(1) as pool, pool.acquire_session() as session:
    print(session.global_("math", "sqrt")(16.0).to_value())
"""
LIBRARIES = ("libtorch_python.so", provision.libpython_path().name, "libinterpool_slot.so")


def is_copy(name: str) -> bool:
    return "/slots/" in name


@pytest.mark.parametrize("library", LIBRARIES)
def test_interpreters_run_code_of_one_file(manager: InterpreterManager, library: str) -> None:
    code = [each for each in mappings() if Path(each.name).name == library and "x" in each.permissions]
    ours = {f"{instance.interpreter_id:04d}" for instance in manager.all_instances()}
    own = [each for each in code if is_copy(each.name) and Path(each.name).parts[-3] in ours]
    shared = [each for each in code if "/files/" in each.name]
    assert len(shared) >= 4, "each of four interpreters has mapped the template's code"
    assert len({each.file for each in shared}) == 1
    assert sum(each.size for each in own) < 0.01 * sum(each.size for each in shared)


def test_an_interpreter_has_data_of_its_own(manager: InterpreterManager) -> None:
    data = {each.file for each in mappings() if each.name.endswith(LIBRARIES[0]) and "w" in each.permissions}
    assert len(data) >= 4


def test_native_frames_are_found_and_exceptions_caught_in_shared_code(manager: InterpreterManager) -> None:
    """Unwinding reads tables that were mapped anew."""
    with every_interpreter(manager, 2) as sessions:
        codes = [
            Code(
                session,
                """
import torch

def caught():
    try:
        torch.ones(2) @ torch.ones(3)  # thrown in libtorch, caught in libtorch_python
    except RuntimeError as error:
        return str(error)
""",
            )
            for session in sessions
        ]
        texts = together([lambda code=code: code.call("caught") for code in codes])  # type: ignore[misc]
    assert all("size" in text for text in texts)


def test_the_loader_and_dladdr_name_the_interpreters_own_file(manager: InterpreterManager) -> None:
    with every_interpreter(manager, 2) as sessions:
        found = [
            Code(
                session,
                """
import ctypes, torch

class Info(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p), ("at", ctypes.c_void_p),
    ]

def whose():
    info = Info()
    function = ctypes.cast(ctypes.pythonapi.PyLong_FromLong, ctypes.c_void_p)
    ctypes.CDLL(None).dladdr(function, ctypes.byref(info))
    return info.file.decode() + " " + info.name.decode()
""",
            ).call("whose")
            for session in sessions
        ]
    assert len(set(found)) == 2
    assert all(is_copy(text) and text.endswith("PyLong_FromLong") for text in found)


@pytest.mark.long
def test_a_damaged_template_shares_only_what_is_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page is compared, so a template that was changed costs memory, not answers."""
    monkeypatch.setenv("INTERPOOL_CACHE", str(tmp_path))
    assert_clean(run_program(ONE))
    (template,) = tmp_path.glob(f"*/files/*/{provision.libpython_path().name}")
    content = bytearray(template.read_bytes())
    content[0x180000:0x1A0000] = bytes(0x20000)  # amid its code
    template.write_bytes(content)
    assert_clean(run_program(ONE))
