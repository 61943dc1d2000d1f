"""The soak: lines tell what grows from what does not, clients right from wrong, and a leak is caught."""

from __future__ import annotations

import http.server
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench import measured
from paths import ROOT
from waiting import wait_for

from benchmarks.soak import benchmark as soak
from benchmarks.soak import clients, handlers
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


@pytest.mark.long
def test_a_short_soak_catches_the_leak_and_finds_no_fault(tmp_path: Path) -> None:
    result, printed = measured(tmp_path, "soak", "--minutes", "0.3", "--control-minutes", "0.3")
    assert result["leak"]["verdict"] == "grows", printed
    assert result["faults"] == result["twice"] == []
    assert result["answers"]["failing"]["errors"] > 0
    assert result["kills"] >= len(result["samples"])
    assert min(one["right"] for one in result["answers"].values()) > 0
