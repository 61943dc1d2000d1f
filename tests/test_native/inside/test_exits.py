"""What a model registers with ``atexit`` is called when the model goes, and not for its neighbours' sake."""

from __future__ import annotations

from pathlib import Path

import pytest
from archives import build_package
from interpool_testing import Code, run_program
from waiting import wait_for

from interpool.native import InterpreterSession

pytestmark = pytest.mark.long

SCOPES = """
import atexit
from interpool.native.inside import module_scope, packages

def load(directory):
    scope = module_scope.ModuleScope(directory)
    module_scope.enter(scope)
    import model
    module_scope.enter(None)
    return scope

scopes = {}

def make(directory):
    scopes[directory] = load(directory)

def close(directory):
    scopes.pop(directory).close()

def enter(directory):
    module_scope.enter(scopes[directory])

def open_package(path):
    packages.load_object(path, "model", "model.pkl")

def close_package(path):
    packages.close_package(path)
"""
WRITES = """
import atexit

def write(text):
    with open({path!r}, "a") as file:
        file.write(text)
"""


@pytest.fixture
def code(session: InterpreterSession) -> Code:
    return Code(session, SCOPES)


class Model:
    """A directory with a module that writes lines when it goes."""

    def __init__(self, tmp_path: Path, name: str, source: str) -> None:
        self.directory = tmp_path / name
        self.directory.mkdir()
        self.written = tmp_path / f"{name}.txt"
        (self.directory / "model.py").write_text(WRITES.format(path=str(self.written)) + source)

    def has_written(self, text: str) -> bool:
        return self.written.exists() and self.written.read_text() == text


def test_exit_functions_are_called_in_reverse_order_when_the_models_scope_is_closed(
    code: Code, tmp_path: Path
) -> None:
    both = "atexit.register(write, 'first.')\n@atexit.register\ndef last():\n    write('last.')\n"
    one, two = Model(tmp_path, "one", both), Model(tmp_path, "two", "atexit.register(write, 'two')")
    for model in (one, two):
        code.call("make", str(model.directory))
    code.call("close", str(one.directory))
    wait_for(lambda: one.has_written("last.first."), "the exit functions of the model that went")
    assert not two.written.exists()
    code.call("close", str(two.directory))
    wait_for(lambda: two.has_written("two"), "the exit functions of the other one")


def test_exit_functions_import_their_own_models_modules(code: Code, tmp_path: Path) -> None:
    source = """
def clean_up():
    from utils import NAME
    write(NAME)

atexit.register(clean_up)
import utils
"""
    one, two = Model(tmp_path, "one", source), Model(tmp_path, "two", source)
    for model in (one, two):
        (model.directory / "utils.py").write_text(f"NAME = {model.directory.name!r}")
        code.call("make", str(model.directory))
    code.call("enter", str(two.directory))
    code.call("close", str(one.directory))
    wait_for(lambda: one.has_written("one"), "the exit function, which imports its own model's module")
    code.call("close", str(two.directory))
    wait_for(lambda: two.has_written("two"), "the other one's")


def test_exit_functions_of_a_loaded_model_are_called_when_the_program_ends(tmp_path: Path) -> None:
    gone, there = (Model(tmp_path, name, f"atexit.register(write, {name!r})") for name in ("gone", "there"))
    done = run_program(
        f"""
        import sys, time
        from pathlib import Path
        from interpool import InterpreterManager
        from interpool_testing import Code, run_program

        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            code = Code(session, {SCOPES!r})
            for directory in sys.argv[1:]:
                code.call("make", directory)
            code.call("close", sys.argv[1])
            written = Path(sys.argv[1] + ".txt")
            while not (written.exists() and written.read_text() == "gone"):
                time.sleep(0.01)
        print(Path(sys.argv[2] + ".txt").exists())
        """,
        str(gone.directory),
        str(there.directory),
    )
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert gone.has_written("gone")
    assert there.has_written("there")


def test_exit_functions_of_a_hermetic_archive_are_called_when_it_is_closed(
    code: Code, tmp_path: Path
) -> None:
    written = tmp_path / "written.txt"
    source = WRITES.format(path=str(written)) + (
        "import torch\n"
        "if __name__.startswith('<torch_package'):\n    atexit.register(write, 'packed')\n"
        "class Model(torch.nn.Module):\n    pass\ndef make():\n    return Model()\n"
    )
    path = build_package(tmp_path / "packed.pt", {"exit_model.py": source}, "exit_model:make")
    code.call("open_package", str(path))
    assert not written.exists()
    code.call("close_package", str(path))
    wait_for(lambda: written.exists() and written.read_text() == "packed", "its exit function")


def test_an_exit_function_that_was_unregistered_is_not_called(code: Code, tmp_path: Path) -> None:
    source = """
def other():
    write("other")

atexit.register(write, "no")
atexit.register(other)
atexit.register(write, "no")
atexit.unregister(write)
"""
    model = Model(tmp_path, "one", source)
    code.call("make", str(model.directory))
    code.call("close", str(model.directory))
    wait_for(lambda: model.has_written("other"), "the one that is left")


def test_an_exit_function_that_fails_or_waits_holds_up_neither_others_nor_the_unloading(
    code: Code, tmp_path: Path
) -> None:
    source = """
import threading, time
go_on = threading.Event()

def wait():
    go_on.wait()
    write("waited.")

atexit.register(go_on.set)
atexit.register(write, "after.")
atexit.register(lambda: 1 / 0)
threading.Timer(0.5, go_on.set).start()
atexit.register(wait)
"""
    model = Model(tmp_path, "one", source)
    code.call("make", str(model.directory))
    code.call("close", str(model.directory))
    wait_for(lambda: model.has_written("waited.after."), "all of them")


def test_exit_functions_neither_run_in_the_directory_of_the_unloading_thread_nor_change_it(
    tmp_path: Path,
) -> None:
    source = """
import os

@atexit.register
def leave():
    open("left", "w").close()
    os.chdir("/")
    write("moved")
"""
    model = Model(tmp_path, "one", source)
    (served := tmp_path / "served").mkdir()
    done = run_program(
        f"""
        import os, sys, time
        from pathlib import Path
        from interpool import InterpreterManager
        from interpool_testing import Code

        directory, served = sys.argv[1:]
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            code = Code(session, {SCOPES!r})
            code.call("make", directory)
            os.chdir(served)
            code.call("close", directory)
            while not Path(directory + ".txt").exists():
                time.sleep(0.01)
            print(os.path.samefile(os.getcwd(), served), os.listdir(served))
        """,
        str(model.directory),
        str(served),
    )
    assert (done.returncode, done.stdout) == (0, "True []\n"), done.stderr
    assert (model.directory / "left").exists()
