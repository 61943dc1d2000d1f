"""A wheel serves a model on a machine without a compiler, headers and a checkout."""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import requests
from documents import (
    README,
    assert_that_the_readmes_model_answers,
    checkout,
    processes_of,
    run_document,
    wait_for_the_end,
)
from linked_tree import link_tree
from local_server import free_ports
from matrix import copy_checkout
from paths import ROOT
from waiting import wait_for

pytestmark = pytest.mark.long

DATED = {"SOURCE_DATE_EPOCH": "1700000000"}
FACTORY = """
import torch

class Twice(torch.nn.Module):
    def forward(self, numbers):
        return numbers * 2

def build():
    return Twice()
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    """This Python's, made from the checkout as it is."""
    faulthandler.cancel_dump_traceback_later()  # two of them take longer than what is stuck elsewhere
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = [ROOT / "scripts" / "wheels", version]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **DATED})
    (found,) = (ROOT / "dist").glob(f"interpool-*-cp{version.replace('.', '')}-manylinux_2_28_x86_64.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel and what it requires, and nothing else."""
    root = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", root / "venv"], check=True)
    programs = root / "venv" / "bin"
    torch = f"torch=={metadata.version('torch').partition('+')[0]}"
    command = [programs / "python", "-m", "pip", "install", "--quiet", "--no-compile", wheel, torch]
    subprocess.run(command, check=True)
    return programs


@pytest.fixture
def environment(installed: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Where nothing but those programs, Java and a few tools are found."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("java", "uname", "sh", "env", "bash", "cat", "ps", "kill", "mkdir", "curl"):
        if found := shutil.which(name):
            (tools / name).symlink_to(os.path.realpath(found))
    temporary = Path(tempfile.mkdtemp(prefix="ip-", dir="/tmp"))  # short, as sockets lie in it
    try:
        yield {
            "PATH": f"{installed}:{tools}",
            "HOME": str(tmp_path),
            "TMPDIR": str(temporary),
            "TEMP": str(temporary),
            "INTERPOOL_RUNTIME_DIR": str(temporary / "run"),
            "INTERPOOL_INTERPRETERS": "2",
            "OMP_NUM_THREADS": "1",
        }
        wait_for(lambda: not processes_of(temporary), "what was started to end")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def test_a_model_is_packed_and_served_with_a_wheel_alone(
    installed: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    assert shutil.which("cc", path=environment["PATH"]) is None

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    (tmp_path / "factory.py").write_text(FACTORY)
    (tmp_path / "store").mkdir()
    run("interpool", "doctor")
    run("interpool", "pack", "factory:build", "-o", "twice.ptpkg")
    run(
        *("torch-model-archiver", "--model-name", "twice", "--version", "1.0"),
        *("--serialized-file", "twice.ptpkg", "--handler", run("interpool", "handler").strip()),
        *("--export-path", "store"),
    )
    names = ("inference", "management", "metrics")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    lines = [f"{name}_address=http://127.0.0.1:{port}" for name, port in ports.items()]
    lines += ["enable_model_api=true", "disable_token_authorization=true", "load_models=all"]
    (tmp_path / "config.properties").write_text("\n".join(lines) + "\n")
    serve = ("interpool", "serve", "--ncs", "--model-store", "store", "--ts-config", "config.properties")
    subprocess.run(serve, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, check=True)
    try:

        def answer() -> requests.Response | None:
            try:
                url = f"http://127.0.0.1:{ports['inference']}/predictions/twice"
                return requests.post(url, json=[1.0, 2.5], timeout=60)
            except requests.ConnectionError:
                return None

        wait_for(lambda: (got := answer()) is not None and got.status_code == 200, "the model to answer")
        got = answer()
        assert got is not None
        assert got.json() == [2.0, 5.0]
        (pool,) = json.loads(run("interpool", "status", "--json"))["pools"]
        assert pool["workers"]
    finally:
        run("torchserve", "--stop")


def test_equal_sources_give_equal_wheels_in_any_folder(wheel: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    copy_checkout(copy)
    made = Path("build", "wheels")
    (copy / made).mkdir(parents=True)
    for torch in (ROOT / made).glob("torch-*"):  # some gigabytes
        link_tree(torch, copy / made / torch.name)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    program = copy / "scripts" / "support" / "wheels.py"
    command = [sys.executable, program, version]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **DATED})
    assert (copy / "dist" / wheel.name).read_bytes() == wheel.read_bytes()


def test_the_readmes_commands_work_with_a_wheel_alone(environment: dict[str, str]) -> None:
    with checkout() as directory:
        (directory / ".venv").unlink()
        shutil.rmtree(directory / "scripts")
        status, output = run_document(README, directory, environment)
        assert status == 0, output + "".join(log.read_text() for log in directory.glob("*/serve.log"))
        assert_that_the_readmes_model_answers(directory, output)
        wait_for_the_end(directory)
