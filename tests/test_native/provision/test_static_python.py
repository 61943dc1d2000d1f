"""A pool in a Python that is linked into its program, as Debian's is: its libpython is another file.

Nothing of interpool's is linked to a libpython: what was built with one CPython 3.11 runs in every other.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}{sys.abiflags}"
PYTHON = Path(f"/usr/bin/python{VERSION}")
LIBPYTHON = Path(f"/usr/lib/{platform.machine()}-linux-gnu/libpython{VERSION}.so.1.0")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (PYTHON.exists() and LIBPYTHON.exists()),
        reason=f"no {PYTHON} of Debian's with {LIBPYTHON}: apt install python{VERSION} libpython{VERSION}",
    ),
]

PROGRAM = """
import platform
from interpool.native import InterpreterManager, provision

print(provision.libpython_path())
print(platform.python_version())
with InterpreterManager(2) as manager:
    for instance in manager.all_instances():
        with instance.acquire_session(timeout=60) as session:
            print(session.global_("platform", "python_version")().to_value())
            squares = session.global_("torch", "arange")(4).attr("square")()
            print(squares.attr("sum")().attr("item")().to_value())
"""


def lines_of_a_pool(folder: Path, **variables: str) -> list[str]:
    """What the program says in that Python, with the packages of the one that runs the tests."""
    packages = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    of_another = {"PYTHONHOME", "INTERPOOL_LIBPYTHON"}
    environment = {name: value for name, value in os.environ.items() if name not in of_another} | {
        "PYTHONPATH": os.pathsep.join(packages),
        "PYTHONNOUSERSITE": "1",
        "OMP_NUM_THREADS": "1",
        "INTERPOOL_CACHE": str(folder / "cache"),
        **variables,
    }
    done = subprocess.run(
        [PYTHON, "-c", PROGRAM], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_static_pythons_library_is_found_and_interpreters_compute(tmp_path: Path) -> None:
    library, release, *said = lines_of_a_pool(tmp_path)
    assert library == str(LIBPYTHON.resolve())
    assert said == [release, "14"] * 2


def test_libpython_can_be_named_in_any_folder(tmp_path: Path) -> None:
    named = tmp_path / "elsewhere" / LIBPYTHON.name
    named.parent.mkdir()
    shutil.copy(LIBPYTHON, named)
    library, release, *said = lines_of_a_pool(tmp_path, INTERPOOL_LIBPYTHON=str(named))
    assert library == str(named)
    assert said == [release, "14"] * 2
