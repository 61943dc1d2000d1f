"""TorchServe's own tests of its worker come out on the overlay and in a pool's interpreter as on stock.

Those that its wheel holds and that need no download run always. ``INTERPOOL_TORCHSERVE_CHECKOUT`` names
a checkout of TorchServe's repository at the installed version, whose ``ts/tests/unit_tests`` run as well;
they need pytest-mock and mock.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from local_server import INTERPOOL

from interpool.native import InterpreterManager

pytestmark = pytest.mark.long

WHEELS = ["ts.torch_handler.unit_tests.test_base_handler", "ts.torch_handler.unit_tests.test_envelopes"]
CHECKOUT = os.environ.get("INTERPOOL_TORCHSERVE_CHECKOUT")
# In an interpreter no plugin may take the process's descriptors or signals.
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:randomly", "-c", os.devnull]
OPTIONS += ["--continue-on-collection-errors"]  # a file that cannot be imported must not stop the others
Outcomes = dict[str, str]


def test_torchserves_own_tests_come_out_as_on_stock(tmp_path: Path) -> None:
    stock = _in_a_process(tmp_path / "stock", None)
    assert [name for name, outcome in stock.items() if outcome == "passed"]
    home = subprocess.run([*INTERPOOL, "home"], capture_output=True, text=True, check=True).stdout.strip()
    overlay = _in_a_process(tmp_path / "overlay", home)
    pool = _in_an_interpreter(tmp_path / "pool")
    assert overlay == stock
    assert pool == stock
    passed = sum(outcome == "passed" for outcome in stock.values())
    assert passed >= 8, stock


def _arguments(folder: Path) -> list[str]:
    folder.mkdir()
    arguments = [*OPTIONS, f"--rootdir={folder}", f"--junitxml={folder / 'results.xml'}", "--pyargs", *WHEELS]
    if CHECKOUT:
        tests = folder / "ts" / "tests"  # they name their files from the repository's root
        shutil.copytree(Path(CHECKOUT) / "ts" / "tests", tests)
        shutil.copy(Path(CHECKOUT) / "ts" / "version.txt", folder / "ts")
        found = {*tests.glob("unit_tests/**/test_*.py"), *tests.glob("unit_tests/**/*_test.py")}
        arguments += map(str, sorted(found))
    return arguments


def _in_a_process(folder: Path, home: str | None) -> Outcomes:
    environment = {**os.environ, "PYTHONPATH": home or ""}
    command = [sys.executable, "-m", "pytest", *_arguments(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    where = subprocess.run(
        [sys.executable, "-c", "import ts; print(ts.__file__)"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert home is None or where.stdout.startswith(home)
    return _outcomes(folder, done.stdout + done.stderr)


def _in_an_interpreter(folder: Path) -> Outcomes:
    arguments = [*_arguments(folder), "-s"]
    before = Path.cwd()
    with InterpreterManager(1) as manager, manager.acquire_session(timeout=60) as session:
        os.chdir(folder)
        try:
            session.global_("pytest", "main")(arguments)
        finally:
            os.chdir(before)
    return _outcomes(folder, "")


def _outcomes(folder: Path, said: str) -> Outcomes:
    """Each test's outcome, by its name."""
    file = folder / "results.xml"
    assert file.exists(), said
    found = {}
    for case in ET.parse(file).iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[f"{case.get('classname')}::{case.get('name')}"] = kinds[0] if kinds else "passed"
    return found


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """This run's own settings are not for those tests."""
    for name in [name for name in os.environ if name.startswith("PYTEST")]:
        monkeypatch.delenv(name)
