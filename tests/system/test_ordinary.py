"""Ordinary archives, which know nothing of interpool, served from the pool."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import container_rules
import pytest
import torch
from local_server import TorchServe
from system.conftest import make_ordinary, wait_for_log
from waiting import wait_for

INSIDE = """
    import os
    import sys
    from ts.torch_handler.base_handler import BaseHandler
    import helper

    class Handler(BaseHandler):
        def initialize(self, context):
            super().initialize(context)
            self.labels = open("labels.txt").read().split()
            self.where = context.system_properties["model_dir"]

        def handle(self, data, context):
            return [self.say() for _ in data]

        def say(self):
            weight = next(self.model.parameters())
            return {
                "pid": os.getpid(),
                "labels": self.labels,
                "helper": helper.NAME,
                "cwd": os.path.samefile(os.getcwd(), self.where),
                "argv": sys.argv[0].rpartition("/")[2],
                "sum": float(self.model(torch.ones(1, 3)).sum()),
            }

    import torch
"""
MODEL = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.linear(x)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[TorchServe]:
    """One TorchServe that serves ordinary archives from the pool, under a container's rules."""
    launcher = (sys.executable, container_rules.__file__)
    with TorchServe(environment={"INTERPOOL_ORDINARY_ARCHIVES": "pool"}, launcher=launcher) as running:
        yield running


def plain_archive(server: TorchServe, name: str, handler: str) -> str:
    return make_ordinary(server, name, {"handler.py": handler})


def net(value: float) -> dict[str, torch.Tensor]:
    """The state of a ``Net`` whose answer to ones is 8 times ``value``."""
    return {"linear.weight": torch.full((2, 3), value), "linear.bias": torch.full((2,), value)}


@pytest.mark.long
def test_models_with_equal_names_for_their_files_do_not_meet(server: TorchServe, tmp_path: Path) -> None:
    for number, name in enumerate(("one", "two"), 1):
        weights = tmp_path / f"{name}.pt"
        torch.save(net(number), weights)
        files: dict[str, str | Path] = {
            "handler.py": INSIDE,
            "helper.py": f"NAME = {name!r}",
            "labels.txt": f"a{number} b{number}",
            "model.py": MODEL,
            "weights.pt": weights,
        }
        mar = make_ordinary(server, name, files, model_file="model.py", serialized_file="weights.pt")
        assert server.register(mar, initial_workers=2).status == 200
    answers = {name: server.predict(name, {}).json for name in ("one", "two", "one", "two")}
    assert len({answer.pop("pid") for answer in answers.values()}) == 1
    assert answers == {
        name: {
            "labels": [f"a{number}", f"b{number}"],
            "helper": name,
            "cwd": True,
            "argv": "model_service_worker.py",
            "sum": 8.0 * number,
        }
        for number, name in enumerate(("one", "two"), 1)
    }


HIDDEN_FORK = """
    import os

    def fork():
        child = getattr(os, "fo" "rk")()
        if not child:
            getattr(os, "_ex" "it")(0)
        os.waitpid(child, 0)
"""


def is_in_pool(server: TorchServe, name: str) -> bool:
    """Whether the pool answers for a model whose answers say their process's number."""
    pids: set[int] = {server.predict(name, {}).json["pid"] for _ in range(4)}
    return pids <= {host.pid for host in server.hosts()}


def left_to_stock(server: TorchServe, name: str, reason: str) -> None:
    """The model is served by stock workers, and its log says why."""
    assert not is_in_pool(server, name)
    wait_for_log(server, reason)


SWALLOWS = (
    HIDDEN_FORK
    + """
    def handle(data, context):
        if data is None:
            try:
                return fork()
            except RuntimeError:
                return
"""
)
SIGNALS = """
    import os
    import signal as s

    def handle(data, context):
        if data is None:
            s.signal(s.SIGUSR1, print)
            return
"""


@pytest.mark.parametrize(
    ("name", "handler", "reason"),
    [
        ("swallows", SWALLOWS, "Model 'swallows' could not be loaded: fork inside a private interpreter"),
        pytest.param(
            *("signals", SIGNALS, "handler.py:7 calls signal.signal: it handles signals"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_model_that_needs_a_process_is_served_by_stock_workers(
    server: TorchServe, name: str, handler: str, reason: str
) -> None:
    text = textwrap.dedent(handler) + "    return [{'pid': os.getpid()} for _ in data]\n"
    assert server.register(plain_archive(server, name, text), initial_workers=1).status == 200
    left_to_stock(server, name, reason)


def test_a_model_that_asks_for_a_process_while_it_is_served_gets_one(server: TorchServe) -> None:
    handler = textwrap.dedent(HIDDEN_FORK) + textwrap.dedent(
        """
        def handle(data, context):
            if data is None:
                return
            if data[0].get("body") == {"fork": True}:
                fork()
            return [{"pid": os.getpid()} for _ in data]
        """
    )
    assert server.register(plain_archive(server, "late", handler), initial_workers=1).status == 200
    assert is_in_pool(server, "late")
    assert server.predict("late", {"fork": True}).status == 503
    wait_for(lambda: server.predict("late", {"fork": True}).status == 200, "stock workers")
    left_to_stock(server, "late", "served by worker processes of its own from now on: fork inside")


@pytest.mark.long
def test_a_model_that_crashes_while_it_is_tried_is_not_tried_again(server: TorchServe) -> None:
    good = "import os\ndef handle(data, context):\n    return [{'pid': os.getpid()} for _ in data or ()]\n"
    assert server.register(plain_archive(server, "good", good), initial_workers=1).status == 200
    bad = """
        import ctypes, os, sys

        def handle(data, context):
            if data is None and "_interpool" in sys.modules:
                ctypes.string_at(0)
            return [{"pid": os.getpid()} for _ in data or ()]
    """
    mar = plain_archive(server, "crashes", bad)
    server.register(mar, initial_workers=1)  # it takes the pool down, and fails
    wait_for(lambda: server.predict("good", {}).status == 200, "the other model")
    assert server.register(mar, initial_workers=1).status == 200
    left_to_stock(server, "crashes", "the pool host ended while it tried to load this model")
    assert is_in_pool(server, "good")


def test_each_model_has_for_itself_what_a_process_has_once(server: TorchServe) -> None:
    handler = """
        import logging, os, sys, torch, warnings

        def handle(data, context):
            name = context.model_name
            if data is None:
                os.environ["OF_THE_MODEL"] = name
                logging.getLogger().setLevel(logging.DEBUG if name == "first" else logging.ERROR)
                warnings.simplefilter("error" if name == "first" else "ignore")
                torch.set_grad_enabled(name == "first")
                os.makedirs(name, exist_ok=True)
                os.chdir(name)
                return
            try:
                warnings.warn("now")
                warned = "ignored"
            except UserWarning:
                warned = "raised"
            level = logging.getLogger().level
            where = os.path.basename(os.getcwd())
            return [[os.environ["OF_THE_MODEL"], level, warned, where, torch.is_grad_enabled()] for _ in data]
    """
    for name in ("first", "second"):
        assert server.register(plain_archive(server, name, handler), initial_workers=2).status == 200
    expected = {
        "first": ["first", 10, "raised", "first", True],
        "second": ["second", 40, "ignored", "second", False],
    }
    for name in ("first", "second") * 8:
        assert server.predict(name, {}).json == expected[name]


WIDE = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wide = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(2)))

        def forward(self, x):
            return self.wide(x)
"""
WIDE_HANDLER = """
    import torch
    from ts.torch_handler.base_handler import BaseHandler

    class Handler(BaseHandler):
        def preprocess(self, data):
            return torch.ones(len(data), 1024)

        def postprocess(self, answers):
            return [float(answer.sum()) for answer in answers]
"""


def shared_memory(pid: int) -> tuple[int, int]:
    """Bytes of weights that a process has mapped from memory, as often as mapped, and once."""
    counts = {"Rss": 0, "Pss": 0}
    inside = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = "/memfd:interpool" in line
        name, _, size = line.partition(":")
        if inside and name in counts:
            counts[name] += int(size.split()[0]) * 1024
    return counts["Rss"], counts["Pss"]


@pytest.mark.parametrize("how", ["eager", pytest.param("scripted", marks=pytest.mark.long)])
def test_weights_are_in_memory_once_for_all_interpreters(
    server: TorchServe, tmp_path: Path, how: str
) -> None:
    weights = [torch.nn.Linear(1024, 1024) for _ in range(2)]
    net = torch.nn.Sequential(*weights)
    size = sum(each.numel() * each.element_size() for each in net.parameters())
    saved = tmp_path / "saved.pt"
    files: dict[str, str | Path] = {"handler.py": WIDE_HANDLER, "weights.pt": saved}
    if how == "scripted":
        torch.jit.trace(net, torch.ones(1, 1024)).save(str(saved))
    else:
        torch.save({f"wide.{n}": v for n, v in net.state_dict().items()}, saved)
        files["model.py"] = WIDE
    good = "import os\ndef handle(data, context):\n    return [{'pid': os.getpid()} for _ in data or ()]\n"
    if not server.hosts():
        assert server.register(plain_archive(server, "first", good)).status == 200
    (host,) = server.hosts()
    before = shared_memory(host.pid)
    model_file = "model.py" if how == "eager" else ""
    mar = make_ordinary(server, f"wide_{how}", files, model_file=model_file, serialized_file="weights.pt")
    assert server.register(mar, initial_workers=2).status == 200
    expected = net(torch.ones(1, 1024)).sum().item()
    answers = [server.predict(f"wide_{how}", {}).json for _ in range(4)]
    assert answers == [pytest.approx(expected, abs=1e-3)] * 4
    mapped, once = (after - then for after, then in zip(shared_memory(host.pid), before, strict=True))
    assert mapped >= 2 * size
    assert size <= once <= 1.2 * size
