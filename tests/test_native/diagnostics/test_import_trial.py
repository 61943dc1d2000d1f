"""`interpool doctor --imports`: whether a module works in private interpreters, and why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from compile import build, python_headers
from paths import EXTENSIONS

from interpool.handler.cli import main
from interpool.native.diagnostics.doctor import Check
from interpool.native.diagnostics.import_trial import checks

pytestmark = pytest.mark.long

# Each imports in an ordinary Python.
MODULES = {
    "crashing": """
        import ctypes
        if inside:
            getattr(ctypes.CDLL(None), "raise")(11)
        """,
    "sharing": """
        if inside:
            open(f"{__file__}-{os.getpid()}", "x")  # one for the process: the second finds it
        """,
    "leaving": """
        if inside:
            os._exit(7)
        """,
    "hanging": """
        if inside:
            time.sleep(1000)
        """,
    "setting_an_alarm": """
        import signal
        signal.alarm(1000)
        """,
}
TIMER_REFUSED = (
    "ValueError: the process's timer ends in a signal that no private interpreter can handle, and that would "
    "end the process; use threading.Timer."
)
PRELUDE = "import os, time\nfrom interpool.native.inside import interpreter_id\ninside = interpreter_id()\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes one of MODULES importable in processes to come."""
    import os
    import textwrap

    def make(name: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(PRELUDE + textwrap.dedent(MODULES[name]))
        return path

    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return make


def only(name: str, seconds: float = 60) -> Check:
    (found,) = checks([name], seconds)
    return found


def test_the_command_shows_what_works_what_crashes_and_what_is_missing(
    module: Callable[[str], Path],
) -> None:
    path = module("crashing")
    done = CliRunner().invoke(main, ["doctor", "--imports", "numpy", "crashing", "no_such_module"])
    assert done.exit_code == 1, done.output
    works, crashed, stock, missing, install = done.stdout.splitlines()
    assert works.startswith("imports  numpy: into two interpreters at once, ")
    assert works.endswith("; `interpool doctor --run module:function` says whether it computes there")
    reason = f"it crashed with SIGSEGV, at {path}:7 in <module>; an ordinary Python imports it"
    assert crashed == f"FAIL  import crashing: {reason}"
    assert stock.startswith("      fix: serve the models that need it by TorchServe's stock workers")
    assert missing.startswith("FAIL  import no_such_module: an ordinary Python does not find it either")
    assert install.startswith("      fix: install it")


def test_state_of_the_whole_process_is_distinguished_from_what_never_works(
    module: Callable[[str], Path],
) -> None:
    module("sharing")
    found = only("sharing")
    assert not found.ok
    assert found.detail.startswith("FileExistsError: ")
    assert found.detail.endswith("with one it works: it has state that all interpreters of a process share")
    assert found.hint.startswith("use a pool of one interpreter, or serve the models")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("leaving", "the process ended with exit status 7 (nothing was said)"),
        ("hanging", "it was not done after 1 s"),
        ("setting_an_alarm", TIMER_REFUSED),
    ],
)
def test_a_failed_import_says_why(module: Callable[[str], Path], name: str, reason: str) -> None:
    module(name)
    found = only(name, seconds=1 if name == "hanging" else 60)
    assert (found.name, found.ok) == (f"import {name}", False)
    assert found.detail == f"{reason}; an ordinary Python imports it"


def test_an_extension_that_is_bound_to_another_python_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = build(
        EXTENSIONS / "plain.c",
        "libpython3.9.so.1.0",
        with_torch=False,
        options=("-Wl,-soname,libpython3.9.so.1.0",),
    )
    folder = build(
        EXTENSIONS / "state.c",
        "state.so",
        with_torch=False,
        options=(
            python_headers(),
            "-Wl,--no-as-needed",
            str(other),
            f"-Wl,-rpath,{other.parent}",
        ),
    ).parent
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    found = only("state")
    assert not found.ok
    assert "state.so cannot be loaded: libpython3.9.so.1.0 is of another Python than this one" in found.detail
    assert "install a build of it for this Python" in found.detail
