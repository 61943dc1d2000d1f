"""The soak: lines tell what grows from what does not, clients right from wrong, and a leak is caught."""

from __future__ import annotations

import http.server
import json
import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from bench import measured
from local_server import Answer
from paths import ROOT
from waiting import wait_for

from benchmarks.soak import benchmark as soak
from benchmarks.soak import clients, handlers, plot
from benchmarks.soak.clients import BAD_INPUT, Client
from benchmarks.soak.slopes import HOUR, slope_of, verdict


def series(
    per_hour: float, noise: float, minutes: float, every_s: float = 5.0
) -> tuple[list[float], list[float]]:
    """Seconds and values: a line from 400, and noise in which each is like the one before."""
    chance = random.Random(1)
    seconds = [number * every_s for number in range(int(60 * minutes / every_s))]
    drift = 0.0
    values = []
    for at in seconds:
        drift = 0.7 * drift + chance.gauss(0, noise)
        values.append(400 + per_hour * at / HOUR + drift)
    return seconds, values


@pytest.mark.parametrize(
    ("per_hour", "noise", "minutes", "expected"),
    [
        (0.0, 0.5, 60, "flat"),
        (0.0, 0.0, 5, "flat"),
        (60.0, 0.5, 60, "grows"),
        (3600.0, 0.5, 1, "grows"),
        (0.0, 5.0, 2, "cannot tell"),
        (-500.0, 0.5, 60, "flat"),
    ],
)
def test_a_line_tells_what_grows_as_far_as_the_samples_allow(
    per_hour: float, noise: float, minutes: float, expected: str
) -> None:
    assert verdict(slope_of(*series(per_hour, noise, minutes)), limit=24.0) == expected


def test_samples_that_follow_one_another_alike_make_a_line_less_certain() -> None:
    seconds, values = series(0.0, 1.0, 30)
    shuffled = random.Random(2).sample(values, len(values))
    assert slope_of(seconds, values).error > 1.5 * slope_of(seconds, shuffled).error


def test_too_few_samples_make_no_line() -> None:
    with pytest.raises(ValueError, match="3 samples are too few"):
        slope_of([1, 2, 3], [1, 2, 3])


def sample(seconds: float, **given: float) -> soak.Sample:
    values: dict[str, Any] = {
        "requests": 0, "memory_mb": 400.0, "private_mb": 300.0, "descriptors": 80, "mappings": 2000,
        "threads": 30, "p50_ms": 2.0, "p99_ms": 5.0, "shims_mb": 1.0, "frontend_mb": 300.0, **given,
    }  # fmt: skip
    return soak.Sample(seconds=seconds, **values)


def test_everything_that_grows_misses_its_bar_and_leaves_no_doubt() -> None:
    flat = [sample(10.0 * number) for number in range(40)]
    _, bars, doubt = soak.judged(flat)
    assert all(bar.met for bar in bars)
    assert doubt == ""
    for what in soak.JUDGED:
        growing = [sample(10.0 * number, **{what: 100.0 + 2 * number}) for number in range(40)]
        known, bars, doubt = soak.judged(growing)
        assert [bar.name.partition(":")[0] for bar in bars if not bar.met] == [what]
        assert known[what]["verdict"] == "grows"
        assert doubt == ""


def test_a_thread_more_in_a_short_time_is_no_slope() -> None:
    known, _, _ = soak.judged([sample(number, threads=30 + number // 10) for number in range(20)])
    assert known["threads"]["per_hour"] > soak.LIMITS["threads"]
    assert known["threads"]["verdict"] != "grows"


def test_the_page_says_how_much_more_may_grow_in_a_run_that_is_short() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    median = sample(0.0).p50_ms

    def limits(minutes: float) -> list[float]:
        return [soak.limit_of(what, [sample(0.0), sample(60 * minutes)]) for what in soak.JUDGED]

    part = 1 - soak.WARM
    rows = {
        "in all": [*soak.RISES.values(), soak.LATENCY_LIMIT * median],
        "an hour, where one counts": [*soak.LIMITS.values(), soak.LATENCY_LIMIT * median],
        f"an hour, by `--long` ({60 * part:g} minutes count)": limits(60 * part),
        f"an hour, by five minutes ({5 * part:g} count)": limits(5 * part),
    }
    assert soak.RISES.keys() == soak.LIMITS.keys()
    assert rows["an hour, where one counts"] == limits(60)
    assert f"\n| at most | {' | '.join(soak.JUDGED)} |\n" in page
    for name, (*counts, latency) in rows.items():
        cells = [
            *(f"{each:.3g}" for each in counts),
            f"{latency / median:.2g} \N{MULTIPLICATION SIGN} its median",
        ]
        assert f"\n| {name} | {' | '.join(cells)} |\n" in page
    memory, _, descriptors, mappings, threads = soak.LIMITS.values()
    assert f"at most {memory:g} MB, {descriptors:g}, {mappings:g}, {threads:g}, a fifth, in less" in page


def test_samples_that_cannot_tell_are_said_to_be_too_few() -> None:
    wild = [sample(number, memory_mb=400.0 + 50 * (number % 3)) for number in range(8)]
    _, bars, doubt = soak.judged(wild)
    assert [bar.name.partition(":")[0] for bar in bars if not bar.met] == ["memory_mb"]
    assert doubt == "too short to tell: memory_mb"


def test_the_first_part_of_the_time_does_not_count() -> None:
    samples = [sample(number) for number in range(101)]
    assert soak.after(samples, 0.25)[0].seconds == 25
    assert len(soak.after(samples[:5], 0.9)) == 4


@contextmanager
def serving(answer: Callable[[dict[str, Any]], tuple[int, object]], times: int = 1) -> Iterator[str]:
    """The address of a server that answers so, each request so many times, and 500 to what is no JSON."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            try:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            except ValueError:
                status, said = 500, "no JSON"
            else:
                status, said = answer(request)
            body = json.dumps(said).encode()
            for _ in range(times):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    with listening(Handler) as address:
        yield address


@contextmanager
def listening(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server whose connections are handled so."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def model() -> handlers.Steady:
    made = handlers.Steady()
    made.initialize(None)
    return made


def test_a_client_counts_right_answers_and_what_its_model_refuses_of_bad_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "FAIL_EVERY", 2)
    own = model()

    def answer(request: dict[str, Any]) -> tuple[int, object]:
        try:
            return 200, own.one(request)
        except Exception as error:  # noqa: BLE001 -- as a server does
            return 500, str(error)

    with serving(answer) as address, Client(address, "m", own.one, failing=True) as client:
        wait_for(lambda: client.errors > len(BAD_INPUT), "answers to each kind of bad input")
    assert client.right >= client.errors
    assert client.wrong == client.faults == []
    assert client.failed == 0
    assert len(client.take_seconds()) == client.right
    assert client.take_seconds() == []


def test_bad_input_that_is_answered_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "FAIL_EVERY", 2)
    own = model()
    with (
        serving(lambda request: (200, own.one({"x": 1}))) as address,
        Client(address, "m", own.one, failing=True) as client,
    ):
        wait_for(lambda: client.faults, "bad input")
    assert client.errors == 0


@pytest.mark.parametrize(
    ("status", "said", "where"), [(200, {"x": 1, "y": -1.0}, "wrong"), (503, "no worker", "faults")]
)
def test_a_client_keeps_what_was_answered_wrongly_or_not_at_all(
    status: int, said: object, where: str
) -> None:
    with (
        serving(lambda _request: (status, said)) as address,
        Client(address, "m", model().one, failing=False) as client,
    ):
        wait_for(lambda: getattr(client, where), "what is wrong")
    assert client.right == client.failed == 0


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nnot JSON", b"HTTP/1.1 200 OK\r\n\r\n"]
)
def test_a_client_that_cannot_read_an_answer_and_ends_keeps_that_as_a_fault(said: bytes) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(said)

        def log_message(self, *_arguments: object) -> None:
            pass

    with listening(Handler) as address, Client(address, "m", model().one, failing=False) as client:
        wait_for(lambda: client.faults, "what ended it")
    (fault,) = client.faults
    assert fault.startswith("m: the client ended: ")
    assert client.right == 0


def test_a_model_that_is_being_changed_may_leave_a_client_without_an_answer() -> None:
    with (
        serving(lambda _request: (404, "no such model")) as address,
        Client(address, "m", model().one, failing=False) as client,
    ):
        with client.changing():
            before = client.failed
            wait_for(lambda: client.failed > before + 3, "requests without an answer")
        wait_for(lambda: client.faults, "one that is not excused")


def test_an_answer_that_comes_twice_is_told_apart_and_not_taken_for_the_next_one() -> None:
    own = model()
    with (
        serving(lambda request: (200, own.one(request)), times=2) as address,
        Client(address, "m", own.one, failing=False) as client,
    ):
        wait_for(lambda: len(client.twice) > 3, "answers that came twice")
    assert client.right >= len(client.twice)
    assert client.wrong == client.faults == []


def test_an_answer_that_comes_late_for_the_second_time_is_told_apart_and_the_connection_given_up() -> None:
    own = model()
    answered: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> tuple[int, object]:
        answered.append(request)
        return 200, own.one(answered[-2] if len(answered) == 3 else request)

    with serving(answer) as address, Client(address, "m", own.one, failing=False) as client:
        wait_for(lambda: client.right > 5, "right answers")
    assert len(client.twice) == 1
    assert client.wrong == client.faults == []


def test_an_error_that_nobody_asked_for_ends_the_connection_and_is_no_answer() -> None:
    own = model()
    with (
        serving(lambda request: (503, own.one(request)), times=2) as address,
        Client(address, "m", own.one, failing=False) as client,
        client.changing(),
    ):
        wait_for(lambda: client.closed > 2 and client.failed > 2, "errors that came unasked")
    assert client.right == 0
    assert client.twice == client.wrong == []


def test_a_connection_that_the_server_says_it_closes_is_not_used_again() -> None:
    own = model()
    used: dict[object, int] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            used[self.client_address] = used.get(self.client_address, 0) + 1
            body = json.dumps(
                own.one(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            ).encode()
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
            )
            self.wfile.write(body)  # and is in no hurry to close it

        def log_message(self, *_arguments: object) -> None:
            pass

    with listening(Handler) as address, Client(address, "m", own.one, failing=False) as client:
        wait_for(lambda: client.right > 5, "right answers")
    assert set(used.values()) == {1}
    assert client.faults == []


class Losing:
    """A server with two workers. That one is dead it sees when a request has failed; until then others do.

    Args:
        replaces: whether there is a new worker now, asked once the dead one is missed.
        alone: whether the other worker answers meanwhile.
    """

    client: Client

    def __init__(self, stack: ExitStack, replaces: Callable[[Client], object], alone: bool = True) -> None:
        self._stack = stack
        self._replaces = replaces
        self._alone = alone
        self._failed = 0  # requests before the death
        self._workers = [self._start() for _ in range(soak.WORKERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        worker = self._stack.enter_context(subprocess.Popen(["sleep", "600"]))
        self._stack.callback(worker.kill)
        return worker

    def _alive(self) -> list[int]:
        return [worker.pid for worker in self._workers if worker.poll() is None]

    def _misses(self) -> bool:
        return self.client.failed > self._failed

    def answers(self) -> bool:
        return len(self._alive()) == soak.WORKERS or (self._alone and self._misses())

    def ready_workers(self, model: str) -> list[int]:
        assert model == soak.KILLED
        alive = self._alive()
        if len(alive) == soak.WORKERS or not self._misses():
            return [worker.pid for worker in self._workers]
        if self._replaces(self.client):
            self._workers = [each if each.pid in alive else self._start() for each in self._workers]
            self._failed = self.client.failed
        return alive


@contextmanager
def losing(replaces: Callable[[Client], object], **how: Any) -> Iterator[tuple[soak.Soaked, Losing]]:
    own = model()
    with ExitStack() as stack:
        server = Losing(stack, replaces, **how)
        address = stack.enter_context(
            serving(lambda request: (200, own.one(request)) if server.answers() else (500, "Worker died."))
        )
        server.client = stack.enter_context(Client(address, soak.KILLED, own.one, failing=False))
        soaked = soak.Soaked(cast(Any, server), stack)
        soaked.clients[soak.KILLED] = server.client
        wait_for(lambda: server.client.right, "an answer")
        yield soaked, server


def test_each_worker_is_killed_in_turn_and_what_fails_before_the_server_misses_it_is_counted_apart() -> None:
    answered: list[int] = []

    def replaces(client: Client) -> bool:
        answered.append(client.right)
        return answered[-1] > answered[0] + 3  # by the worker that is left

    with losing(replaces) as (soaked, server):
        first, second = server.ready_workers(soak.KILLED)
        soaked._kill_worker()
        new, left = server.ready_workers(soak.KILLED)
        assert (left, soaked.kills) == (second, 1)
        assert new != first
        assert server.client.failed == 1
        answered.clear()
        soaked._kill_worker()
        assert server.ready_workers(soak.KILLED)[0] == new
        assert second not in server.ready_workers(soak.KILLED)
        assert server.client.failed == 2
    assert soaked.told()["kills"] == 2
    assert soaked.told()["faults"] == []
    assert all(bar.met for bar in soaked.certain())


def test_a_request_that_fails_though_the_server_has_another_worker_is_a_fault() -> None:
    with losing(lambda client: client.faults, alone=False) as (soaked, _):
        soaked._kill_worker()
    assert "Worker died." in soaked.told()["faults"][0]
    missed = [bar.name for bar in soaked.certain() if not bar.met]
    assert missed == ["no request failed but as it was to"]


def test_a_soak_whose_killed_worker_is_not_replaced_ends_and_tells_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def replaces(_client: Client) -> bool:
        monkeypatch.setattr(soak, "PATIENCE_S", 0.0)  # from now on
        return False

    with losing(replaces) as (soaked, _):
        assert soaked.run(3600, lambda _sample: None) == []
    assert soaked.ended.endswith("waited 0 s for 2 workers of killed")


@dataclass
class Racing:
    """A server whose frontend always fails as it races with itself."""

    asked: int = 0

    def unregister(self, _name: str) -> Answer:
        self.asked += 1
        return Answer(500, f'Cannot invoke "{soak.TORCHSERVES_RACE}" because "job" is null'.encode(), {})


def test_unregistering_is_tried_a_few_times_where_torchserve_races_with_itself_and_then_told() -> None:
    server = Racing()
    told = r'm was not unregistered, asked 5 times at most: 500 .*"job" is null'
    with ExitStack() as stack, pytest.raises(soak.Ended, match=told):
        soak.Soaked(cast(Any, server), stack)._unregister("m")
    assert server.asked == soak.TRIES


@dataclass
class Dying:
    """A server whose host, which is this process, is another one from the third look on."""

    frontend: psutil.Process = field(default_factory=psutil.Process)
    looks: int = 0

    def hosts(self) -> list[psutil.Process]:
        self.looks += 1
        return [psutil.Process() if self.looks < 3 else psutil.Process(1)]

    def shims(self) -> list[psutil.Process]:
        return []

    def host_log(self) -> str:
        return "its last words"


def test_a_soak_whose_host_is_not_the_same_any_more_ends_and_tells_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(soak, "PAUSE_S", 0.0)
    with ExitStack() as stack:
        soaked = soak.Soaked(cast(Any, Dying()), stack)
        soaked.clients[soak.SCALED] = Client("http://127.0.0.1:1", "m", model().one, failing=False)
        monkeypatch.setattr(soaked, "change", lambda: None)
        monkeypatch.setattr(soaked.clients[soak.SCALED], "take_seconds", lambda: [0.001])
        samples = soaked.run(3600, lambda _sample: None)
    assert len(samples) == 2
    assert f"the host was process {os.getpid()}, and is [1]" in soaked.ended
    assert soaked.ended.endswith("its last words")
    assert next(bar.name for bar in soaked.certain() if not bar.met) == "it could go on to its end"


def test_a_soak_whose_model_is_not_answered_any_more_ends_and_tells_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(soak, "PAUSE_S", 0.0)
    with ExitStack() as stack:
        soaked = soak.Soaked(cast(Any, Dying()), stack)
        soaked.clients[soak.SCALED] = Client("http://127.0.0.1:1", "m", model().one, failing=False)
        monkeypatch.setattr(soaked, "change", lambda: None)
        assert soaked.run(3600, lambda _sample: None) == []
    assert soaked.ended.endswith("scaled has given no right answer since the last sample")


def test_the_figure_is_drawn_from_what_is_kept(tmp_path: Path) -> None:
    samples = [vars(sample(10.0 * number)) for number in range(10)]
    file = plot.draw(json.loads(json.dumps(samples)), tmp_path / "soak.svg", 25.0)
    assert file.read_text().startswith("<?xml")


@pytest.mark.long
def test_a_short_soak_catches_the_leak_and_finds_no_fault(tmp_path: Path) -> None:
    result, printed = measured(tmp_path, "soak", "--minutes", "0.3", "--control-minutes", "0.3")
    assert result["leak"]["verdict"] == "grows", printed
    assert result["faults"] == result["twice"] == []
    assert result["answers"]["failing"]["errors"] > 0
    assert result["kills"] >= len(result["samples"])
    assert min(one["right"] for one in result["answers"].values()) > 0
    assert (tmp_path / "soak.svg").stat().st_size > 1000
