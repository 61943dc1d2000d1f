"""Innocent models under checked load, while everything around them is killed, and neighbours misbehave.

Each has a client at TorchServe's inference address, and one at the pool's direct address.

It fails at a wrong answer, at an outage longer than its bound, or if a process, a socket, a file or a
descriptor is left at the end. Whether a host grows while it lives is for ``scripts/bench soak``. What is
done follows from the seed, when it is done does not.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import chaos_models  # noqa: E402
import psutil  # noqa: E402
from local_server import JSON, TorchServe, free_ports  # noqa: E402
from model_archiver.model_archiver_config import ModelArchiverConfig  # noqa: E402
from model_archiver.model_packaging import generate_model_archive  # noqa: E402
from waiting import wait_for  # noqa: E402

from interpool.archiver_ext.packing.pack import pack  # noqa: E402
from interpool.handler import interpool_handler  # noqa: E402

INNOCENT = ("one", "two", "three")
ENVIRONMENT = {
    "INTERPOOL_INTERPRETERS": "2",
    "INTERPOOL_MEMORY_MB": "1500",
    "INTERPOOL_MAX_INTERPRETERS": "4",
}
LISTENS = "0A"  # the state of a listening socket in /proc/net/tcp
SAME = 6  # times that counts are looked at, half a second apart
REQUEST_S = 90.0
RETRY = re.compile(r"Retry worker: \d+ in (\d+) seconds")


@dataclass
class Checked:
    """One client of an innocent model: what it met."""

    server: TorchServe
    name: str
    address: str  # of what it asks, with http://
    wrong: list[str] = field(default_factory=list)
    right: int = 0
    failed: int = 0
    outage: float = 0.0  # the longest between two right answers, since it was taken last
    last: float = field(default_factory=time.monotonic)

    def run(self, stop: threading.Event) -> None:
        number = 0
        while not stop.is_set():
            number = (number + 1) % 50
            try:
                url, body = f"{self.address}/predictions/{self.name}", json.dumps({"x": number}).encode()
                answer = self.server.request("POST", url, body, JSON, REQUEST_S)
            except (OSError, ValueError, http.client.HTTPException):  # what it asks is gone
                answer = None
            now = time.monotonic()
            if answer is None or answer.status != 200:
                self.failed += 1
                time.sleep(0.05)
                continue
            if answer.json != chaos_models.answer_of(number):
                self.wrong.append(f"{self.name} at {self.address} of {number}: {answer.text}")
            self.right += 1
            self.outage = max(self.outage, now - self.last)
            self.last = now
            time.sleep(0.01)  # the machine is for what is done to it

    def take_outage(self, since: float) -> float:
        """The longest since then, also if no right answer has come since."""
        longest, self.outage = max(self.outage, time.monotonic() - self.last), 0.0
        self.last = max(self.last, since)
        return longest


class Chaos:
    """Does things to a server, each by a method; ``random`` chooses what."""

    def __init__(self, server: TorchServe, chance: random.Random) -> None:
        self.server = server
        self._chance = chance
        self._number = 0
        self._packed: dict[str, Path] = {}
        self._read = 0  # of TorchServe's log

    def archive(self, name: str, model: str) -> str:
        if model not in self._packed:
            self._packed[model] = self.server.root / f"{model}.ptpkg"
            pack(f"chaos_models:{model.title()}", self._packed[model], root=HERE)
        config = self.server.root / f"{name}.yaml"
        config.write_text(f"responseTimeout: {3 if model == 'evil' else 60}\n")
        generate_model_archive(
            ModelArchiverConfig(
                model_name=name,
                handler=str(interpool_handler.__file__),
                version="1.0",
                serialized_file=str(self._packed[model]),
                export_path=str(self.server.store),
                config_file=str(config),
                force=True,
            )
        )
        return f"{name}.mar"

    def register_innocent(self) -> None:
        for name in INNOCENT:
            self.server.checked(self.server.register(self.archive(name, "innocent"), initial_workers=2))

    def kill_host(self) -> None:
        for host in self.server.hosts():
            with contextlib.suppress(psutil.NoSuchProcess):
                host.kill()

    def kill_shim(self) -> None:
        shims = sorted(self.server.shims(), key=lambda process: process.pid)
        if shims:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._chance.choice(shims).kill()

    def kill_frontend(self) -> None:
        self.server.frontend.send_signal(signal.SIGKILL)
        wait_for(
            lambda: not self.server.hosts() and not self.server.shims(), "hosts and shims to end", pause=0.1
        )
        with contextlib.suppress(OSError):
            (self.server.tmp / ".model_server.pid").unlink()
        self.server.start()
        self.register_innocent()

    def churn(self) -> None:
        with self._registered("innocent") as name:
            if name:
                answer = self.server.predict(name, {"x": 7}, timeout=REQUEST_S)
                if answer.status == 200 and answer.json != chaos_models.answer_of(7):
                    raise RuntimeError(f"a wrong answer of {name}: {answer.text}")

    def hostile_archive(self) -> None:
        good = (self.server.store / "one.mar").read_bytes()
        at = self._chance.randrange(len(good))
        bad = self._chance.choice([good[:at], b"", good[:at] + bytes(64) + good[at + 64 :]])
        (self.server.store / "hostile.mar").write_bytes(bad)
        before = set(self.server.tmp.iterdir())
        self.server.register("hostile.mar", model_name="hostile")
        self.server.unregister("hostile")
        for path in set(self.server.tmp.glob("*.download")) - before:
            shutil.rmtree(path)  # which TorchServe leaves behind

    def misbehave(self, way: str) -> Callable[[], None]:
        def misbehave() -> None:
            with self._registered("evil") as name:
                if name:
                    with contextlib.suppress(OSError):
                        self.server.predict(name, {"way": way}, timeout=REQUEST_S)

        return misbehave

    def trace(self, way: str) -> Callable[[], None]:
        """A model that leaves that trace comes, is asked, and goes; or its load fails."""

        def trace() -> None:
            self._number += 1
            when = self._chance.choice(["load", "call", "failure"])
            name = f"{way}-{when}-{self._number}"
            archive = self.archive(name, "tracing")
            answer = self.server.register(archive, initial_workers=self._chance.choice([1, 2]))
            if answer.status == 200:
                for number in range(4):
                    with contextlib.suppress(OSError):
                        self.server.predict(name, {"x": number}, timeout=REQUEST_S)
            self.server.unregister(name)
            (self.server.store / archive).unlink()

        return trace

    @contextlib.contextmanager
    def _registered(self, model: str):  # type: ignore[no-untyped-def]
        self._number += 1
        name = f"{model}{self._number}"
        archive = self.archive(name, model)
        answer = self.server.register(archive)
        try:
            yield name if answer.status == 200 else ""
        finally:
            self.server.unregister(name)
            (self.server.store / archive).unlink()

    def take_back_off(self) -> int:
        """The longest that TorchServe makes a worker wait, as its log says since this was asked last."""
        with (self.server.logs / "ts_log.log").open() as file:
            file.seek(self._read)
            text = file.read()
            self._read = file.tell()
        return max(map(int, RETRY.findall(text)), default=0)

    def deeds(self) -> dict[str, Callable[[], None]]:
        named = {
            "kill the host": self.kill_host,
            "kill a shim": self.kill_shim,
            "kill the frontend": self.kill_frontend,
            "churn": self.churn,
            "hostile archive": self.hostile_archive,
        }
        named |= {f"evil: {way}": self.misbehave(way) for way in chaos_models.WAYS}
        return named | {f"trace: {way}": self.trace(way) for way in chaos_models.TRACES}


def counts(server: TorchServe) -> dict[str, object]:
    """What there is of a server; of a host that has just started, as what a host has ends with it."""
    hosts = server.hosts()
    interpreters = [one for pool in server.pools().values() for one in pool["interpreters"]["interpreters"]]
    loads = sum(len(one["affinities"]) for one in interpreters)
    return {
        "hosts": len(hosts),
        "shims": len(server.shims()),
        "other processes": len(server.processes()) - len(hosts) - len(server.shims()),
        "sockets": len(server.sockets()),
        "runtime files": len(list(server.runtime.rglob("*"))),
        "extracted models": len(list((server.tmp / "models").iterdir())),
        "other temporary files": sorted(
            # Each start of a server has a home under another name.
            "home" if path.name.startswith("interpool-server-") else path.name
            for path in server.tmp.iterdir()
            if not path.name.startswith(".ts.sock")
        ),
        "descriptors of the host": [descriptors(host.pid, loads) for host in hosts],
    }


def descriptors(pid: int, loads: int) -> dict[str, int]:
    """How many of which kind that process has: sockets, pipes, files by their names.

    TCP connections are not counted: clients, and requests to TorchServe, come and go. Neither are the archive
    and the folder that a loaded model has open: how many interpreters load it depends on the requests.

    Args:
        pid: of the process.
        loads: the number of models that its interpreters have loaded, each as often as it is loaded.
    """
    found: Counter[str] = Counter()
    connections = tcp_connections()
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(Path(os.readlink(link)).name)
    connections |= tcp_connections()  # also those that came while the links were read
    for name in links:
        if name not in connections:
            found[re.sub(r":\[\d+\]$|\d{3,}", "", name)] += 1
    for kind in found:
        if kind.startswith(("data-", "# (deleted)")):
            found[kind] -= loads
    return dict(sorted(found.items()))


def tcp_connections(port: int | None = None) -> set[str]:
    """This machine's TCP connections, by the names of their descriptors' links.

    Args:
        port: the port of this machine that they were made to; None: any.
    """
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state, inode = (line.split()[column] for column in (1, 3, 9))
        is_wanted = port is None or int(local.partition(":")[2], 16) == port
        if is_wanted and state != LISTENS and inode != "0":
            found.add(f"socket:[{inode}]")
    return found


def stable(server: TorchServe, chaos: Chaos, checked: list[Checked]) -> dict[str, object]:
    """Counts with a fresh host that serves all clients, once they stay the same."""
    chaos.kill_host()
    _await_service(checked, time.monotonic())
    server.wait_for_interpreters(2)
    found: list[dict[str, object]] = []

    def same() -> bool:  # models are still being loaded in the second interpreter
        found.append(counts(server))
        time.sleep(0.5)
        return len(found) >= SAME and all(one == found[-1] for one in found[-SAME:])

    wait_for(same, lambda: f"counts that stay: {found[-2:]}")
    return found[-1]


def moved(server: TorchServe) -> list[str]:
    """Innocent models that another pool serves than the one they came to."""
    return [
        f"{worker['model']} is served by the pool {pool}"
        for pool, state in server.pools().items()
        for worker in state["workers"]
        if worker["model"].partition("/")[0] in INNOCENT and pool != "default"
    ]


def _await_service(checked: list[Checked], since: float) -> None:
    before = [one.right for one in checked]

    def missing() -> list[str]:
        return [
            f"{one.name} at {one.address}"
            for one, right in zip(checked, before, strict=True)
            if one.right < right + 3 or one.last < since
        ]

    wait_for(lambda: not missing(), lambda: f"right answers again of {missing()}", pause=0.05)


@dataclass
class Run:
    """Deeds, one after another, and what came of them."""

    server: TorchServe
    chaos: Chaos
    checked: list[Checked]
    options: argparse.Namespace
    faults: list[str] = field(default_factory=list)

    def do(self, name: str, deed: Callable[[], None]) -> None:
        """That, and wait until all clients are served again."""
        began = time.monotonic()
        self.chaos.take_back_off()
        hosts = self.server.hosts()
        for one in self.checked:
            one.take_outage(began)
        try:
            deed()
        except OSError as error:
            print(f"  {name}: {error}")
        _await_service(self.checked, time.monotonic())
        outage = max(one.take_outage(began) for one in self.checked)
        took, back_off = time.monotonic() - began, self.chaos.take_back_off()
        lived = "the host lived" if self.server.hosts() == hosts else "another host"
        waited = f"outage {outage:5.1f} s (back-off {back_off} s), {took:5.1f} s in all"
        print(f"{name:<24} {waited}, {lived}", flush=True)
        bound = self.options.frontend_outage if "frontend" in name else self.options.outage
        if outage > bound:
            self.faults.append(f"{name}: {outage:.1f} s without an answer, and {bound:g} s are its bound")

    def all(self, chance: random.Random) -> None:
        """Each deed once, in an order of chance; again and again for as long as it is to take."""
        deeds = {name: deed for name, deed in self.chaos.deeds().items() if self.options.only in name}
        bag: list[str] = []
        until = time.monotonic() + self.options.seconds
        while time.monotonic() < until:
            if not bag:
                bag = chance.sample(list(deeds), len(deeds))
            name = bag.pop()
            self.do(name, deeds[name])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="scripts/chaos")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--outage", type=float, default=30.0, help="longest, in seconds, of an innocent model"
    )
    parser.add_argument("--frontend-outage", type=float, default=60.0, help="after a kill of the frontend")
    parser.add_argument("--only", default="", help="deeds whose name holds this text")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    (port,) = free_ports(1)
    environment = {**ENVIRONMENT, "INTERPOOL_DIRECT_ADDRESS": f"127.0.0.1:{port}"}
    with TorchServe(environment=environment) as server:
        chance = random.Random(options.seed)
        chaos = Chaos(server, chance)
        chaos.register_innocent()
        stop = threading.Event()
        addresses = (server.inference, f"http://127.0.0.1:{port}")
        checked = [Checked(server, name, address) for name in INNOCENT for address in addresses]
        clients = [threading.Thread(target=one.run, args=(stop,)) for one in checked]
        for client in clients:
            client.start()
        run = Run(server, chaos, checked, options)
        faults = run.faults
        try:
            before = stable(server, chaos, checked)
            chaos.archive("ahead", "evil")  # packing takes a while
            run.all(chance)
            after = stable(server, chaos, checked)
            faults += [
                f"{what}: {before[what]} at the start, {after[what]} at the end"
                for what in before
                if before[what] != after[what]
            ]
            faults += moved(server)
        except Exception:
            print(server.host_log()[-6000:], server.model_log()[-3000:], sep="\n", file=sys.stderr)
            raise
        finally:
            stop.set()
            for client in clients:
                client.join()
        try:
            wait_for(lambda: not tcp_connections(port), "the end of connections whose clients have left")
        except AssertionError as error:
            faults.append(str(error))
        faults += [wrong for one in checked for wrong in one.wrong]
        for address in addresses:
            there = [one for one in checked if one.address == address]
            right, failed = sum(one.right for one in there), sum(one.failed for one in there)
            print(f"{address}: {right} right answers, {failed} requests without one")
        print(json.dumps(after))
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"seed {options.seed}: {'failed' if faults else 'passed'}", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    os.chdir(HERE)
    sys.exit(main())
