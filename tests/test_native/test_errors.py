"""An exception of a model arrives as an error that says where it was raised, and none ends the pool."""

from __future__ import annotations

import linecache
import pickle
from typing import Any

import pytest
from interpool_testing import Code

from interpool.native import InterpreterSession
from interpool.native.errors import InterpoolError, RemoteError

RAISES = """
class Custom(Exception):
    def __str__(self): return "custom \\ud800 text"

class Unprintable(Exception):
    def __str__(self): raise RuntimeError("no")

class NotEvenNamed(Exception):
    pass
NotEvenNamed.__module__ = 7

def interrupt(): raise KeyboardInterrupt
def group(): raise ExceptionGroup("several", [ValueError("one"), TypeError("two")])
def chained():
    try:
        {}["cause"]
    except KeyError as error:
        raise ValueError("effect") from error
def custom(): raise Custom
def unprintable(): raise Unprintable
def not_named(): raise NotEvenNamed("text")
def stop(): raise StopIteration
def generator(): raise GeneratorExit
def long_text(): raise ValueError("x" * 2**20)
def torch_shape():
    import torch
    return torch.ones(2) + torch.ones(3)
def torch_backward():
    import torch
    torch.ones(2).sum().backward()
"""

CASES = {
    "interrupt": ("KeyboardInterrupt", ""),
    "group": ("ExceptionGroup", "several (2 sub-exceptions)"),
    "chained": ("ValueError", "effect"),
    "custom": ("Custom", "custom \\ud800 text"),
    "unprintable": ("Unprintable", ""),
    "not_named": ("NotEvenNamed", "text"),
    "stop": ("StopIteration", ""),
    "generator": ("GeneratorExit", ""),
    "long_text": ("ValueError", "x" * 2**20),
    "torch_shape": ("RuntimeError", "The size of tensor a (2) must match"),
    "torch_backward": ("RuntimeError", "does not require grad"),
}


@pytest.mark.parametrize("name", CASES)
def test_every_exception_is_an_error_and_the_interpreter_lives(
    session: InterpreterSession, name: str
) -> None:
    type_name, message = CASES[name]
    code = Code(session, RAISES)
    with pytest.raises(RemoteError) as caught:
        code[name]()
    assert caught.value.type_name.rpartition(".")[2] == type_name
    assert message in caught.value.message
    assert f"in {name}" in caught.value.traceback
    assert session.global_("builtins", "sum")([1, 2]).to_value() == 3


def test_an_error_carries_the_traceback_with_files_lines_and_source(
    session: InterpreterSession, tmp_path: Any
) -> None:
    (tmp_path / "module_of_this_test.py").write_text(
        "def outer():\n    inner()\n\ndef inner():\n    raise LookupError('nothing there')\n"
    )
    session.global_("sys", "path").attr("append")(str(tmp_path))
    with pytest.raises(RemoteError) as caught:
        session.global_("module_of_this_test", "outer")()
    error = caught.value
    assert (error.type_name, error.message) == ("LookupError", "nothing there")
    assert f'{tmp_path}/module_of_this_test.py", line 2, in outer' in error.traceback
    assert f'{tmp_path}/module_of_this_test.py", line 5, in inner' in error.traceback
    assert "raise LookupError('nothing there')" in error.traceback
    assert str(error).startswith("LookupError: nothing there")
    assert error.traceback.strip() in str(error)
    linecache.checkcache()


def test_a_chain_of_errors_arrives_whole(session: InterpreterSession) -> None:
    with pytest.raises(RemoteError) as caught:
        Code(session, RAISES)["chained"]()
    assert "KeyError: 'cause'" in caught.value.traceback
    assert "direct cause" in caught.value.traceback


@pytest.mark.parametrize(
    ("module", "name", "type_name"),
    [
        ("no_such_module", "x", "ModuleNotFoundError"),
        ("os", "no_such_name", "AttributeError"),
        ("os.path.join", "x", "ModuleNotFoundError"),
        ("", "x", "ValueError"),
    ],
)
def test_a_global_that_is_not_there_is_an_error(
    session: InterpreterSession, module: str, name: str, type_name: str
) -> None:
    with pytest.raises(RemoteError) as caught:
        session.global_(module, name)
    assert caught.value.type_name == type_name


def test_a_class_of_errors_of_interpools_own_raised_inside_is_not_mistaken(
    session: InterpreterSession,
) -> None:
    # A model may use interpool's classes, well or badly.
    code = Code(
        session,
        """
        from interpool.native import errors
        def good(): raise errors.ArchiveError("of the model's")
        def remote(): raise errors.RemoteError("ValueError", "inner", "inner traceback")
        class Own(errors.ArchiveError): pass
        Own.__module__ = "interpool.native.errors"
        def own(): raise Own("not in the module")
        """,
    )
    for name in ("good", "remote", "own"):
        with pytest.raises(InterpoolError):
            code[name]()


def test_a_finaliser_that_raises_does_not_disturb_the_caller(
    session: InterpreterSession, capfd: pytest.CaptureFixture[str]
) -> None:
    code = Code(
        session,
        """
        class Bad:
            def __del__(self): raise ValueError("from a finaliser")
        def make(): return Bad()
        """,
    )
    bad = code["make"]()
    del bad
    assert session.from_value(1).to_value() == 1
    assert "from a finaliser" in capfd.readouterr().err


def test_an_error_can_be_pickled(session: InterpreterSession) -> None:
    with pytest.raises(RemoteError) as caught:
        session.global_("builtins", "int")("x")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.type_name == "ValueError"
