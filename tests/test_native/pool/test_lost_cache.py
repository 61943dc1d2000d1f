"""A pool whose cache is removed, or cannot be written any more, goes on: it even grows."""

from __future__ import annotations

from pathlib import Path

import pytest
from interpool_testing import assert_clean, run_program
from linked_tree import link_cache

pytestmark = pytest.mark.long

PROGRAM = """
import os, shutil, sys
from pathlib import Path
from interpool.native import InterpreterManager
from waiting import wait_for

(environment,) = Path(os.environ["INTERPOOL_CACHE"]).iterdir()
is_writable = sys.argv[1] == "removed"

def random_of(session):
    numpy = session.global_("importlib", "import_module")("numpy.random")  # which nobody has imported before
    return numpy.attr("RandomState")(7).attr("randint")(0, 1000).to_value()

def added_by(session):
    torch = session.global_("importlib", "import_module")("torch")
    return torch.attr("ones")(3).attr("add")(1).attr("sum")().attr("item")().to_value()

with InterpreterManager(1, max_size=2) as manager:
    shutil.rmtree(environment)
    if not is_writable:
        environment.touch()
    manager.resize(2)
    wait_for(lambda: len(manager) == 2 or manager.stats()["failure"], "the second interpreter")
    assert not manager.stats()["failure"], manager.stats()["failure"]
    answers = []
    for instance in manager.all_instances():
        with instance.acquire_session() as session:
            answers.append((random_of(session), added_by(session)))
            session.global_("importlib", "import_module")("ctypes").attr("pythonapi")
    assert answers == [(175, 6.0)] * 2, answers
    assert environment.is_dir() == is_writable
    held = {line.split()[-2] for line in open("/proc/self/maps") if "memfd:" in line and ".so" in line}
    assert bool(held) != is_writable, held
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One of the test's own, in which all templates are made."""
    root = tmp_path / "cache"
    link_cache(root, "slots", "locks")
    monkeypatch.setenv("INTERPOOL_CACHE", str(root))
    return root


MOVED = """
import os, shutil, sys
from interpool.native import InterpreterManager

def imported(session, name):
    return session.global_("importlib", "import_module")(name)

with InterpreterManager(1) as manager, manager.acquire_session() as session:
    imported(session, "array")
    os.environ["INTERPOOL_CACHE"] = sys.argv[1]
    os.chdir("/proc")  # where nothing can be made
    imported(session, "numpy.random")
    mapped = {line.split()[-1] for line in open("/proc/self/maps") if "/slots/" in line}
    roots = {path.partition("/slots/")[0] for path in mapped}
    assert len(roots) == 1, roots
"""


@pytest.mark.usefixtures("cache")
def test_a_pool_stays_with_the_cache_that_it_began_with(tmp_path: Path) -> None:
    assert_clean(run_program(MOVED, str(tmp_path / "another place")))
    assert not (tmp_path / "another place").exists()


@pytest.mark.parametrize("way", [pytest.param("removed", marks=pytest.mark.long), "unwritable"])
def test_a_pool_grows_and_imports_what_is_new_to_it(cache: Path, way: str) -> None:
    done = run_program(PROGRAM, way)
    complaints = [line for line in done.stderr.splitlines() if "cannot write to the cache directory" in line]
    assert len(complaints) == (way == "unwritable"), done.stderr
    done.stderr = "\n".join(line for line in done.stderr.splitlines() if line not in complaints)
    assert_clean(done)
