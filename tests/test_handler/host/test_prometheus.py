"""The pools as Prometheus sees them."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pool_states import interpreter, leases, model, pool, worker
from prometheus_client import CollectorRegistry, generate_latest
from waiting import wait_for

from interpool.handler.direct.traffic import Traffic
from interpool.handler.errors import SettingsError
from interpool.handler.host import prometheus
from interpool.handler.host.prometheus import (
    PoolCollector,
    beside,
    listen,
    listen_beside_others,
    serve_metrics,
    url_of,
)


def _text(*pools: dict[str, Any], silent: int = 0) -> str:
    registry = CollectorRegistry()
    registry.register(PoolCollector(lambda: (list(pools), ["a host"] * silent)))
    return generate_latest(registry).decode()


@contextmanager
def _sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _exporter() -> Iterator[socket.socket]:
    """The socket of an exporter that answers in a thread of this process."""
    ended = threading.Event()
    with listen("127.0.0.1:0") as listener:
        thread = threading.Thread(target=serve_metrics, args=(listener, ended.is_set), daemon=True)
        thread.start()
        try:
            yield listener
        finally:
            ended.set()
            thread.join(60)


OF = 'model="m",pool="default",server="127.0.0.1:8080",version="1.0"'


def test_a_pool_is_exported_with_its_models() -> None:
    lines = _text(pool(), silent=1).splitlines()
    for line in (
        "interpool_pools 1.0",
        "interpool_silent_hosts 1.0",
        'interpool_host_start_time_seconds{pool="default",server="127.0.0.1:8080"} 1000.0',
        'interpool_interpreters{pool="default",server="127.0.0.1:8080",state="free"} 2.0',
        'interpool_memory_bytes{kind="anonymous",pool="default",server="127.0.0.1:8080"} 60.0',
        f"interpool_model_ready{{{OF}}} 1.0",
        f"interpool_model_interpreters{{{OF}}} 1.0",
        f"interpool_lease_seconds_sum{{{OF}}} 1.5",
        f'interpool_lease_wait_seconds_bucket{{le="0.01",{OF}}} 2.0',
        f'interpool_lease_wait_seconds_bucket{{le="1.0",{OF}}} 3.0',
        f'interpool_lease_wait_seconds_bucket{{le="+Inf",{OF}}} 3.0',
        f"interpool_lease_wait_seconds_sum{{{OF}}} 0.3",
        f"interpool_lease_wait_seconds_count{{{OF}}} 3.0",
    ):
        assert line in lines


def test_answers_of_the_direct_address_are_exported() -> None:
    traffic = Traffic()
    for status, seconds in ((200, 0.002), (200, 0.004), (503, 100.0)):
        traffic.note(status, seconds)
    direct = {"address": "127.0.0.1:8090", "models": [traffic.describe("m/1.0", 7)]}
    lines = _text(pool(direct=direct)).splitlines()
    of = OF.replace(",version", ',status="{}",version')
    for line in (
        f"interpool_direct_requests_total{{{of.format(200)}}} 2.0",
        f"interpool_direct_requests_total{{{of.format(503)}}} 1.0",
        f"interpool_direct_requests_waiting{{{OF}}} 7.0",
        f'interpool_direct_request_seconds_bucket{{le="0.0025",{OF}}} 1.0',
        f'interpool_direct_request_seconds_bucket{{le="60.0",{OF}}} 2.0',
        f'interpool_direct_request_seconds_bucket{{le="+Inf",{OF}}} 3.0',
        f"interpool_direct_request_seconds_sum{{{OF}}} 100.006",
    ):
        assert line in lines
    assert "interpool_direct_requests_total{" not in _text(pool())


def test_retirements_and_failures_are_counted() -> None:
    dead = [interpreter(1, "retired"), interpreter(2)]
    text = _text(pool(stats={"interpreters": dead, "failed_starts": 3}, workers=[worker(started=False)]))
    assert 'interpool_interpreter_retirements_total{pool="default",server="127.0.0.1:8080"} 1.0' in text
    assert 'interpool_interpreter_starts_total{pool="default",server="127.0.0.1:8080"} 2.0' in text
    assert 'interpool_interpreter_start_failures_total{pool="default",server="127.0.0.1:8080"} 3.0' in text
    assert f"interpool_model_ready{{{OF}}} 0.0" in text


def test_counters_of_a_model_that_is_gone_stay_and_its_gauges_do_not() -> None:
    gone = {"m/1.0": model(failed_loads=2)}
    text = _text(pool(served={}, workers=[], gone=gone, stats={"models": {}}))
    assert f"interpool_model_load_failures_total{{{OF}}} 2.0" in text
    assert "interpool_model_ready{" not in text


def test_a_pool_whose_interpreters_have_not_started_is_exported_too() -> None:
    text = _text(pool(interpreters=None))
    assert 'interpool_interpreters{pool="default",server="127.0.0.1:8080",state="free"} 0.0' in text
    assert f"interpool_model_ready{{{OF}}} 0.0" in text


def test_names_that_users_chose_break_nothing() -> None:
    odd = 'a"b\\c\nd'
    text = _text(pool(served={"/m": model(f"{odd}/1.0")}, stats={"models": {"/m": leases()}}))
    assert r'interpool_model_ready{model="a\"b\\c\nd"' in text


def test_scrapes_are_answered_until_the_server_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "running_frontend", lambda: None)
    with _sleeping() as process, listen("127.0.0.1:0") as listener:
        thread = threading.Thread(target=serve_metrics, args=(listener, beside(process.pid)), daemon=True)
        thread.start()
        for path in ("", "?name[]=interpool_pools"):
            with urllib.request.urlopen(url_of(listener) + path, timeout=60) as answer:
                assert b"interpool_pools" in answer.read()
        process.kill()
        wait_for(lambda: not thread.is_alive(), "the exporter's end")


def test_a_client_that_says_nothing_keeps_no_other_waiting() -> None:
    with _exporter() as listener, socket.create_connection(listener.getsockname()) as silent:
        silent.sendall(b"GET ")
        with urllib.request.urlopen(url_of(listener), timeout=60) as answer:
            assert answer.status == 200


def test_a_client_that_says_nothing_leaves_no_log_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prometheus._Handler, "timeout", 0.01)
    with _exporter() as listener, socket.create_connection(listener.getsockname(), timeout=60) as silent:
        assert silent.recv(1) == b""
    assert capsys.readouterr().err == ""


def test_clients_that_say_nothing_make_only_so_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus._Handler, "timeout", None)  # they may be silent for any time
    most = prometheus.MOST_CLIENTS
    with _exporter() as listener, ExitStack() as connections:
        for _ in range(most + 1):
            connections.enter_context(last := socket.create_connection(listener.getsockname(), timeout=60))
        assert last.recv(1) == b""
        assert threading.active_count() <= most + 1
        connections.close()
        wait_for(lambda: threading.active_count() < most, "the end of a thread")
        with urllib.request.urlopen(url_of(listener), timeout=60) as answer:
            assert answer.status == 200


def test_the_exporter_follows_the_torchserve_that_its_starter_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["true"]) as starter, _sleeping() as server:
        monkeypatch.setattr(
            prometheus, "running_frontend", lambda: server.pid if server.poll() is None else None
        )
        starter.wait()
        over = beside(starter.pid)
        assert not over()
        server.kill()
        server.wait()
        assert over()
    monkeypatch.setattr(prometheus, "running_frontend", lambda: None)
    assert beside(2**22)()
    assert not beside(os.getpid())()


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1:0", "http://127.0.0.1:"),
        ("http://127.0.0.1:0/", "http://127.0.0.1:"),
        (":0", "http://127.0.0.1:"),
        ("0.0.0.0:0", "http://0.0.0.0:"),
    ],
)
def test_addresses_are_a_host_and_a_port(address: str, url: str) -> None:
    with listen(address) as listener:
        assert url_of(listener).startswith(url)


@pytest.mark.parametrize("address", ["9191", "host:port", "", "127.0.0.1:99999", "no.such.host.invalid:1"])
def test_a_text_that_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match=r"an address for metrics is|cannot be served at"):
        listen(address)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"{host}:{port}"


def test_an_address_that_another_servers_exporter_has_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(tmp_path))  # without hosts
    monkeypatch.setattr(prometheus, "RELEASE_S", 0.0)
    monkeypatch.setattr(prometheus, "ANSWER_S", 60.0)
    with _exporter() as listener:
        assert listen_beside_others(_address(listener)) is None


def test_an_address_that_will_be_free_in_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = _address(other)
        clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: other.close())
        monkeypatch.setattr(prometheus, "time", clock)
        listener = listen_beside_others(address)
        assert other.fileno() == -1
        assert listener is not None
        with listener:
            assert _address(listener) == address


def test_an_address_that_something_else_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "RELEASE_S", 0.0)
    monkeypatch.setattr(prometheus, "ANSWER_S", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(SettingsError, match="cannot be served at"),
    ):
        listen_beside_others(_address(other))
