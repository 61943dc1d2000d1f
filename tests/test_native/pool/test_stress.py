"""Everything at once, from changing numbers of threads: right answers, no deadlock, no growth."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import otf
import pytest
import third_party_guest
import torch
from archives import build_scale
from interpool_testing import Code, every_interpreter, outstanding, rss_mib, together
from paths import ROOT
from serving_client import Client
from waiting import wait_for

from interpool.native import InterpreterManager
from interpool.native.errors import (
    ArchiveError,
    LeaseTimeoutError,
    RemoteError,
    SessionClosedError,
    WrongInterpreterError,
)

PREPARE = """
import sys, torch
from interpool.native.inside import interpreter_id

@torch.library.custom_op("native_stress::times", mutates_args=())
def times(x: torch.Tensor) -> torch.Tensor:
    return x * interpreter_id()

def use():
    return torch.ops.native_stress.times(torch.ones(2)).tolist() == [float(interpreter_id())] * 2

def gradient(k):
    x = torch.full((8,), float(k), requires_grad=True)
    (x * x).sum().backward()
    return x.grad

sys.modules["stress_names"] = type(sys)("stress_names")
sys.modules["stress_names"].use, sys.modules["stress_names"].gradient = use, gradient
"""


class Steps:
    """What threads do, at random; each step checks its own answer."""

    def __init__(self, manager: InterpreterManager, folder: Path) -> None:
        self.manager = manager
        self.folder = folder
        self.models = []
        for k in (2, 3):
            package = manager.load_package(build_scale(folder / f"scale{k}.pt", k))
            self.models.append((k, package.load_pickle("model", "model.pkl")))
        self.expected = {name: third_party_guest.answer(name) for name in ("numpy", "scipy", "tokenizers")}
        self.shared: list[torch.Tensor] = []
        self.lock = threading.Lock()
        self.done = 0

    def run(self, seed: int, until: float) -> None:
        chance = random.Random(seed)
        steps = [getattr(self, name) for name in dir(self) if name.startswith("step_")]
        while time.monotonic() < until:
            chance.choice(steps)(chance)
            with self.lock:
                self.done += 1

    def step_values(self, chance: random.Random) -> None:
        text = "ä" * chance.randrange(99)
        value = {"a": [chance.random(), chance.getrandbits(100), text], 3: (None, b"\0")}
        with self.manager.acquire_session(timeout=60) as session:
            assert session.from_value(value).to_value() == value

    def step_tensor(self, chance: random.Random) -> None:
        x = torch.full((chance.randrange(1, 4000),), 2.0)
        with self.manager.acquire_session(timeout=60) as session:
            there = session.from_value(x)
            there.attr("mul_")(3)
            back = there.to_value()
        assert back.data_ptr() == x.data_ptr()
        assert bool((back == 6).all())

    def step_memory(self, chance: random.Random) -> None:
        with self.manager.acquire_session(timeout=60) as session:
            made = session.global_("counting_guest", "make")(1000).to_value()
            name = ("stress", chance.randrange(20))
            session.global_("counting_guest", "keep")(name, made)
            assert session.global_("counting_guest", "total")(name).to_value() == 7000
        with self.lock:
            self.shared.append(made)
            gone = self.shared.pop(chance.randrange(len(self.shared))) if len(self.shared) > 20 else made
        assert gone.sum().item() == 7000

    def step_model(self, chance: random.Random) -> None:
        k, model = chance.choice(self.models)
        x = torch.rand(4)
        assert torch.equal(model(x), k * x)

    def step_kernel(self, chance: random.Random) -> None:
        with self.manager.acquire_session(timeout=60) as session:
            use = session.global_("stress_names", "use")
            assert all(use().to_value() for _ in range(5))

    def step_gradient(self, chance: random.Random) -> None:
        k = chance.randrange(100)
        with self.manager.acquire_session(timeout=60) as session:
            gradient = session.global_("stress_names", "gradient")(k).to_value()
        assert gradient.tolist() == [2.0 * k] * 8

    def step_library(self, chance: random.Random) -> None:
        name = chance.choice(list(self.expected))
        with self.manager.acquire_session(timeout=60) as session:
            assert session.global_("third_party_guest", "answer")(name).to_value() == self.expected[name]

    def step_error(self, chance: random.Random) -> None:
        text = f"text {chance.random()}"
        with (
            self.manager.acquire_session(timeout=60) as session,
            pytest.raises(RemoteError, match=f"ValueError.*{text}"),
        ):
            session.global_("builtins", "int")(text)

    def step_misuse(self, chance: random.Random) -> None:
        session = self.manager.acquire_session(timeout=60)
        try:
            with session, self.manager.acquire_session(timeout=0.05) as other:
                stranger = other.from_value([1])
                with pytest.raises(WrongInterpreterError):
                    session.global_("builtins", "len")(stranger)
        except LeaseTimeoutError:
            pass  # all are out: others do the same

    def step_attributes(self, chance: random.Random) -> None:
        with self.manager.acquire_session(timeout=60) as session:
            value = session.from_value({"a": [1, 2]})
            assert value["a"].item(1).to_value() == 2
            assert value.has_attr("keys")
            assert not value.has_attr("shape")
            with pytest.raises(RemoteError, match="AttributeError"):
                value.attr("shape")
            with pytest.raises(RemoteError, match="KeyError"):
                value.item("b")

    def step_closed(self, chance: random.Random) -> None:
        with self.manager.acquire_session(timeout=60) as session:
            value = session.from_value([chance.random()])
        uses = [value.to_value, value, partial(value.attr, "append"), partial(value.item, 0)]
        with pytest.raises(SessionClosedError):
            chance.choice(uses)()
        with (
            self.manager.acquire_session(timeout=60) as other,
            pytest.raises(SessionClosedError),  # even where the interpreter is the same
        ):
            other.global_("builtins", "len")(value)

    def step_timeout(self, chance: random.Random) -> None:
        """Gives up on a lease, or gets one in time; nothing is lost either way."""
        try:
            with self.manager.acquire_session(timeout=chance.random() / 1000) as session:
                assert session.from_value(1).to_value() == 1
        except LeaseTimeoutError:
            pass

    def step_package(self, chance: random.Random) -> None:
        """Loads an archive of its own, uses and drops it; the file goes first."""
        path = self.folder / f"{chance.getrandbits(64):x}.pt"
        shutil.copy(self.folder / "scale3.pt", path)
        package = self.manager.load_package(path)
        path.unlink()
        model = package.load_pickle("model", "model.pkl")
        x = torch.rand(4)
        assert torch.equal(model(x), 3 * x)
        with pytest.raises(ArchiveError):
            package.load_pickle("model", "missing.pkl")

    def step_movable(self, chance: random.Random) -> None:
        weights = torch.rand(chance.randrange(1, 2000))
        if chance.random() < 0.5:
            movable = self.manager.create_movable({"weights": weights})
        else:
            with self.manager.acquire_session(timeout=60) as session:
                movable = self.manager.create_movable(session.from_value({"weights": weights}))
        for _ in range(chance.randrange(1, 4)):
            with movable.acquire_session(timeout=60) as session:
                there = session.self["weights"].to_value()
            assert torch.equal(there, weights)
            assert there.data_ptr() == weights.data_ptr()
        if chance.random() < 0.5:
            movable.unload()

    def step_dropped(self, chance: random.Random) -> None:
        value = self.manager.acquire_session(timeout=60).from_value([1, 2])
        assert value.attr("__len__")().to_value() == 2

    def step_connection(self, chance: random.Random) -> None:
        client = Client(self.manager, "describe", worker=f"w{chance.random()}")
        try:
            for _ in range(chance.randrange(1, 6)):
                frame = otf.predict(chance.randbytes(chance.randrange(2000)))
                assert bytes.fromhex(client.ask(frame)["frame"]) == frame
            if chance.random() < 0.5:
                client.send(frame[: chance.randrange(len(frame))])
        finally:
            client.connection.close()
            client.close()

    def step_thread_inside(self, chance: random.Random) -> None:
        with self.manager.acquire_session(timeout=60) as session:
            code = Code(session, THREAD)
            assert code.call("work", 10) == 10.0


THREAD = """
import threading, torch

def work(k):
    result = []
    thread = threading.Thread(target=lambda: result.append(torch.full((k,), 1.0).sum().item()))
    thread.start()
    thread.join()
    return result[0]
"""


def test_everything_at_once(
    manager: InterpreterManager, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seconds = int(os.environ.get("STRESS_SECONDS", "2"))
    before = outstanding(manager)
    with every_interpreter(manager) as sessions:
        for session in sessions:
            Code(session, PREPARE)
    steps = Steps(manager, tmp_path)
    chance = random.Random(4)  # begins with two threads, and then four
    phases = max(2, seconds // 10)
    memory: list[float] = []
    for phase in range(phases):
        until = time.monotonic() + seconds / phases
        threads = chance.choice([1, 2, 4, 6, 12])
        works = [partial(steps.run, 1000 * phase + i, until) for i in range(threads)]
        together(works, timeout=seconds / phases + 120)
        memory.append(rss_mib())
    capfd.readouterr()  # connections cut on purpose are logged
    with capfd.disabled():
        print(json.dumps({"steps": steps.done, "seconds": seconds, "rss_mib": [round(m) for m in memory]}))

    steps.shared.clear()
    with every_interpreter(manager) as sessions:
        for session in sessions:
            session.global_("counting_guest", "drop_all")()
    wait_for(lambda: outstanding(manager) <= before, "the arrays to be freed")
    if seconds > 100:
        # The first third imports, fills caches and lets the allocator find its size.
        assert max(memory[len(memory) // 3 * 2 :]) - memory[len(memory) // 3] < 60


def jemalloc() -> str:
    """Debian's libjemalloc2."""
    found = sorted(Path("/usr/lib").glob("*/libjemalloc.so.2"))
    assert found, "scripts/setup --tests installs libjemalloc2"
    return str(found[0])


@pytest.mark.long
@pytest.mark.parametrize("allocator", ["glibc", "jemalloc"])
def test_everything_at_once_for_long(allocator: str) -> None:
    """In a process of its own, whose memory is the test's alone.

    With jemalloc preloaded, as TorchServe's images have it, no allocator frees what another one gave.
    """
    preloaded = {"LD_PRELOAD": jemalloc()} if allocator == "jemalloc" else {}
    program = (
        "import pytest, sys\n"
        f"assert ('jemalloc' in open('/proc/self/maps').read()) is {allocator == 'jemalloc'}\n"
        "sys.exit(pytest.main())"
    )
    test = f"{__file__}::{test_everything_at_once.__name__}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, "-q", "-p", "no:cacheprovider", test],
        env={**os.environ, **preloaded, "STRESS_SECONDS": "150"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
