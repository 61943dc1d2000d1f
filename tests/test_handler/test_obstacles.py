"""What keeps an ordinary archive out of a pool, as far as that shows in its files."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path

import pytest
from extracted import extracted

from interpool.handler.obstacles import obstacles


@pytest.fixture
def model(tmp_path: Path) -> Path:
    extracted(tmp_path, handler="handler.py", configFile="config.yaml")
    (tmp_path / "config.yaml").write_text("minWorkers: 1\n")
    (tmp_path / "handler.py").write_text("")
    return tmp_path


def reasons(model: Path, handler: str = "", configuration: str = "") -> list[str]:
    (model / "handler.py").write_text(textwrap.dedent(handler))
    (model / "config.yaml").write_text(configuration)
    return [obstacle.why for obstacle in obstacles(model)]


# In a pool's way if multiprocessing forks by default.
FORK_BY_DEFAULT = [
    ("import multiprocessing as mp\nmp.Process(target=print)", "multiprocessing.Process"),
    ("import torch.multiprocessing as mp\nmp.Pool(2)", "torch.multiprocessing.Pool"),
    ("from concurrent.futures import ProcessPoolExecutor\nProcessPoolExecutor()", "ProcessPoolExecutor"),
    ("import torch\ntorch.utils.data.DataLoader([], num_workers=2)", "DataLoader with num_workers"),
    (
        "from torch.utils.data import DataLoader\nDataLoader([], num_workers=N)",
        "DataLoader with num_workers",
    ),
]
SPAWN = """
import concurrent.futures as cf, multiprocessing as mp, multiprocessing.pool, torch
from torch.utils.data import DataLoader
spawn = mp.get_context("spawn")
"""
SPAWNING = [
    "spawn.Pool(2)",
    "cf.ProcessPoolExecutor(1, mp_context=spawn)",
    "cf.ProcessPoolExecutor(1, spawn)",
    "cf.ProcessPoolExecutor(mp_context=mp.get_context(method='spawn'))",
    "cf.ProcessPoolExecutor(mp_context=torch.multiprocessing.get_context('forkserver'))",
    "multiprocessing.pool.Pool(2, context=spawn)",
    "DataLoader([], num_workers=2, multiprocessing_context='spawn')",
    "DataLoader([], num_workers=2, multiprocessing_context=spawn)",
    "class H:\n  own = mp.get_context('spawn')\n  pool = cf.ProcessPoolExecutor(mp_context=own)",
]
FORKING = [
    "cf.ProcessPoolExecutor(1, mp_context=mp.get_context('fork'))",
    "cf.ProcessPoolExecutor(1, mp_context=mp.get_context())",
    "DataLoader([], num_workers=2, multiprocessing_context='fork')",
    "DataLoader([], num_workers=2, multiprocessing_context=None)",
    "spawn = mp.get_context('fork')\ncf.ProcessPoolExecutor(mp_context=spawn)",
    "cf.ProcessPoolExecutor(mp_context=somebodys)",
]
FORKS_BY_DEFAULT = sys.version_info < (3, 14)


@pytest.mark.parametrize(
    ("handler", "word"),
    [
        ("import os\nos.fork()", "os.fork: it forks"),
        ("from os import fork as split\nsplit()", "os.fork: it forks"),
        ("from concurrent import interpreters\ninterpreters.create()", "it makes interpreters of its own"),
        *(FORK_BY_DEFAULT if FORKS_BY_DEFAULT else ()),
        ("import signal\ndef handle(d, c):\n    signal.signal(2, print)", "handler.py:3 calls signal.signal"),
        ("import torch\ntorch.set_num_interop_threads(1)", "set_num_interop_threads"),
        ("import torch.distributed as dist\ndist.init_process_group('gloo')", "init_process_group"),
        ("import locale\nlocale.setlocale(0, 'C')", "a setting of the whole process"),
    ],
)
def test_calls_that_need_a_process_are_found_in_the_handler_file(
    model: Path, handler: str, word: str
) -> None:
    (found,) = reasons(model, handler)
    assert word in found


@pytest.mark.parametrize(
    "handler",
    [
        "import subprocess\nsubprocess.run(['true'])",
        "import multiprocessing as mp\nmp.get_context('spawn').Process(target=print)",
        "import multiprocessing as mp\nmp.set_start_method('spawn')\nmp.Pool(2)",
        *(f"{SPAWN}{call}" for call in SPAWNING),
        "from torch.utils.data import DataLoader\nDataLoader([], num_workers=0)",
        "import os\nif __name__ == '__main__':\n    os.fork()",
        "import signal\nsignal.SIGTERM",
        "def fork(): pass\nfork()",
        "this is no Python",
        pytest.param("x = " + "-" * 100_000 + "1", id="deeper than can be parsed"),
        pytest.param("x = " + "+".join(["1"] * 100_000), id="deeper than ast can follow"),
        *(() if FORKS_BY_DEFAULT else [handler for handler, _ in FORK_BY_DEFAULT]),
    ],
)
def test_code_that_works_in_a_pool_is_no_obstacle(model: Path, handler: str) -> None:
    assert reasons(model, handler) == []


@pytest.mark.skipif(not FORKS_BY_DEFAULT, reason="nothing forks unless the code asks for it")
@pytest.mark.parametrize("call", FORKING)
def test_a_call_that_may_fork_is_an_obstacle_beside_others_that_spawn(model: Path, call: str) -> None:
    assert len(reasons(model, f"{SPAWN}{call}")) == 1


@pytest.mark.parametrize(
    ("configuration", "word"),
    [
        ("asyncCommunication: true", "asyncCommunication"),
        ("parallelType: pp", "parallelType: pp"),
        ("useVenv: true", "useVenv"),
        ("interpool:\n  ordinary: stock", "its settings say"),
    ],
)
def test_settings_that_need_a_process_are_found(model: Path, configuration: str, word: str) -> None:
    (found,) = reasons(model, configuration=configuration)
    assert word in found


def test_a_handler_of_torchserves_own_has_no_obstacles(model: Path) -> None:
    manifest = {"model": {"modelName": "m", "handler": "image_classifier"}}
    (model / "MAR-INF" / "MANIFEST.json").write_text(json.dumps(manifest))
    assert obstacles(model) == []


def test_a_pipe_in_the_place_of_the_handler_is_not_waited_for(model: Path) -> None:
    (model / "handler.py").unlink()
    os.mkfifo(model / "handler.py")
    assert obstacles(model) == []
