"""Hermetic models behind a real, unmodified TorchServe: everything a client and an operator do."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from local_server import INTERPOOL, JSON, TorchServe
from system.conftest import Mar, Pack, wait_for_log
from tensor_bytes import saved
from waiting import wait_for


@pytest.fixture
def inside(server: TorchServe, mar: Mar) -> Iterator[str]:
    """A registered model that says where it runs."""
    yield from _registered(server, mar(server, "inside", "inside"), "inside")


@pytest.fixture
def linear(server: TorchServe, mar: Mar) -> Iterator[str]:
    yield from _registered(server, mar(server, "linear", "linear"), "linear")


@pytest.fixture
def echo(server: TorchServe, mar: Mar) -> Iterator[str]:
    yield from _registered(server, mar(server, "echo", "make_echo"), "echo")


def _registered(server: TorchServe, archive: str, name: str) -> Iterator[str]:
    answer = server.register(archive)
    assert answer.status == 200, f"{answer.text}\n{server.model_log()[-5000:]}\n{server.host_log()[-5000:]}"
    yield name
    assert server.unregister(name).status == 200


# ---- one host, many workers ----------------------------------------------------------------


def test_models_run_in_one_host_process_and_workers_are_shims_that_stay_small(
    server: TorchServe, inside: str, linear: str
) -> None:
    (host,) = server.hosts()
    assert server.predict(inside, {}).json["pid"] == host.pid
    assert server.predict(linear, [1.0, 1, 1]).json == [3.0, 12.0]
    shims = {shim.pid for shim in server.shims()}
    workers = {worker["pid"] for worker in server.describe(inside)[0]["workers"]}
    assert len(shims) == 2
    assert workers < shims
    assert host.pid not in shims
    for shim in server.shims():
        assert shim.memory_full_info().uss < 6 * 2**20


def test_status_shows_the_pool(server: TorchServe, inside: str) -> None:
    printed = subprocess.run(
        [*INTERPOOL, "status", "--json"],
        env={**os.environ, **server.own_environment},
        stdout=subprocess.PIPE,
        check=True,
    )
    (pool,) = json.loads(printed.stdout)["pools"]
    (host,) = server.hosts()
    assert pool["pid"] == host.pid
    assert pool["frontend_pid"] == server.frontend.pid
    assert [worker["state"] for worker in pool["workers"]] == ["connected"]
    assert pool["memory"]["pss"] > 0
    assert server.pools().keys() == {pool["pool"]}  # what other tests ask


def test_workers_are_added_and_removed_in_the_one_host(server: TorchServe, inside: str) -> None:
    """Of which no pipe stays there: it would keep TorchServe's reader threads for ever."""
    (host,) = server.hosts()

    def scale_up_and_down() -> None:
        assert server.scale(inside, 5).status == 200  # of two interpreters: a worker that waits holds none
        assert len(server.describe(inside)[0]["workers"]) == len(server.shims()) == 5
        with ThreadPoolExecutor(5) as threads:
            answers = list(threads.map(lambda _: server.predict(inside, {"sleep": 0.1}), range(5)))
        assert {answer.json["pid"] for answer in answers} == {host.pid}
        assert server.scale(inside, 1).status == 200
        wait_for(lambda: len(server.shims()) == 1, "four shims to end", pause=0.1)
        wait_for(lambda: len(server.sockets()) == 1, "their sockets to go")

    scale_up_and_down()
    before = host.num_fds()
    for _ in range(3):
        scale_up_and_down()
    # Of twelve workers; an interpreter that has started meanwhile may have some for itself.
    wait_for(lambda: host.num_fds() < before + 12, "the host's descriptors")
    assert server.predict(inside, {}).json["pid"] == host.pid


def test_versions_are_served_side_by_side(server: TorchServe, mar: Mar) -> None:
    first = mar(server, "versioned", "linear", version="1.0")
    assert server.register(first).status == 200
    second = mar(server, "versioned", "inside", version="2.0")
    assert server.register(second).status == 200
    assert server.predict("versioned/2.0", {}).json["model"] == "versioned"
    assert server.predict("versioned", [1.0, 0, 0]).json == [0.0, 3.0]
    url = f"{server.management}/models/versioned/2.0/set-default"
    assert server.request("PUT", url).status == 200
    assert server.predict("versioned", {}).json["model"] == "versioned"
    assert server.unregister("versioned/1.0").status == 200
    assert server.unregister("versioned/2.0").status == 200
    assert server.predict("versioned", {}).status == 404


def test_a_batch_is_answered_together(server: TorchServe, mar: Mar) -> None:
    archive = mar(server, "batched", "inside")
    assert server.register(archive, batch_size=4, max_batch_delay=2000).status == 200
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: server.predict("batched", {}), range(4)))
    assert [answer.json["batch"] for answer in answers] == [4] * 4
    assert server.unregister("batched").status == 200


def test_a_model_without_archive_is_served_until_it_is_unregistered(server: TorchServe, mar: Mar) -> None:
    directory = mar(server, "plain", "linear", archive_format="no-archive")
    assert server.register(directory).status == 200
    assert server.predict("plain", [1.0, 1, 1]).json == [3.0, 12.0]
    assert server.unregister("plain").status == 200
    assert (server.store / "plain" / "linear.ptpkg").is_file()


# ---- inputs --------------------------------------------------------------------------------


def test_bodies_and_forms_become_arguments(server: TorchServe, echo: str) -> None:
    for body, content_type, expected in (
        (b"[1, 2.5]", JSON, "tensor([1.0000, 2.5000])"),
        (b'{"inputs": [1, 2], "dtype": "float16"}', JSON, "tensor([1., 2.], dtype=torch.float16)"),
        (b"[1, 2]", f"{JSON}; charset=utf-8", "tensor([1, 2])"),
        ("größe".encode(), "text/plain", "'größe'"),
        (b"\x00\x01", "application/octet-stream", r"b'\x00\x01'"),
        (saved(torch.ones(2)), "application/x-unknown", "tensor([1., 1.])"),
    ):
        answer = server.post(echo, body, content_type)
        assert answer.status == 200, answer.text
        assert answer.json == {"positional": [expected], "named": {}}
        assert answer.headers["content-type"] == JSON
    answer = server.predict(echo, {"x": [1, 2], "greedy": True, "text": "hi"})
    assert answer.json["named"] == {"x": "tensor([1, 2])", "greedy": "True", "text": "'hi'"}
    answer = server.post_form(
        echo,
        {
            "x": (b"[1, 2]", None),
            "text": (b"hi", None),
            "file": (b"\xff\xd8", "image/jpeg"),
            "tensor": (saved(torch.ones(1)), "application/octet-stream"),
        },
    )
    expected_of_the_form = {
        "x": "tensor([1, 2])",
        "text": "'hi'",
        "file": r"b'\xff\xd8'",
        "tensor": "tensor([1.])",
    }
    assert answer.json["named"] == expected_of_the_form


def test_a_bad_input_is_the_clients_fault_and_a_pickle_that_runs_code_is_not_loaded(
    server: TorchServe, linear: str, tmp_path: Path
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return open, (str(tmp_path / "evil"), "w")  # type: ignore[return-value]

    for body, content_type, message in (
        (b"{nope", JSON, "body is not JSON"),
        (b"[[1.0], [1, 2]]", JSON, "not a rectangular array"),
        (b"[1]", "application/x-www-form-urlencoded", "-H 'Content-Type: application/json'"),
        (saved(Evil()), "application/octet-stream", "io.open"),
    ):
        answer = server.post(linear, body, content_type)
        assert message in answer.text
        assert answer.status == 400
    assert "send tensors, numbers, texts, bytes" in answer.text
    assert not (tmp_path / "evil").exists()


# ---- logs and metrics ----------------------------------------------------------------------


def test_prints_and_metrics_are_the_right_workers(server: TorchServe, mar: Mar) -> None:
    for name in ("anna", "bert"):
        assert server.register(mar(server, name, "inside")).status == 200
    for name in ("anna", "bert", "anna"):
        assert server.predict(name, {"say": f"word of {name}"}).status == 200
    threads = {name: server.describe(name)[0]["workers"][0]["id"] for name in ("anna", "bert")}
    for name in ("anna", "bert"):
        wait_for_log(server, f"{name}_1.0-stdout MODEL_LOG - word of {name}")
        wait_for_log(server, f"{name}_1.0-stderr MODEL_LOG - word of {name}")
        wait_for_log(server, f"a thread says word of {name}")
    log = server.model_log().splitlines()
    for name in ("anna", "bert"):
        said = [line for line in log if line.endswith(f"- word of {name}")]
        sources = {line.split("] ")[1].split(" ")[0] for line in said}
        assert sources == {
            f"W-{threads[name]}-{name}_1.0-stdout",
            f"W-{threads[name]}-{name}_1.0-stderr",
        }
        (by_a_thread,) = {
            line.split("] ")[1].split(" ")[0] for line in log if f"a thread says word of {name}" in line
        }
        assert by_a_thread == f"W-{threads[name]}-{name}_1.0-stdout"

    def measured(name: str) -> bool:
        text = server.request("GET", f"{server.metrics}/metrics").text
        label = f'ModelName="{name}"'
        return any(line.startswith("PredictionTime{") and label in line for line in text.splitlines())

    for name in ("anna", "bert"):
        wait_for(lambda name=name: measured(name), f"the metrics of {name}")
        assert server.unregister(name).status == 200


# ---- errors --------------------------------------------------------------------------------


def test_a_model_that_raises_answers_503_and_lives_on(server: TorchServe, inside: str) -> None:
    answer = server.predict(inside, {"raise": "not today"})
    assert answer.status == 503
    message = answer.json["message"]
    assert "Model 'inside' raised ValueError: not today" in message
    assert "samples.py" in message
    assert "Traceback" not in message
    wait_for_log(server, "Traceback (most recent call last)")
    wait_for_log(server, "ValueError: not today")
    assert server.predict(inside, {}).status == 200


def test_a_model_that_exits_restarts_its_worker_and_nothing_else(server: TorchServe, inside: str) -> None:
    (host,) = server.hosts()
    (before,) = server.describe(inside)[0]["workers"]
    assert server.predict(inside, {"exit": 3}).status == 500
    wait_for(lambda: server.predict(inside, {}).status == 200, "the worker's restart")
    (after,) = server.describe(inside)[0]["workers"]
    assert before["pid"] != after["pid"]
    assert server.hosts() == [host]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("truncated", "cut short"),
        ("raises", "FileNotFoundError: no vocabulary here"),
    ],
)
def test_a_package_that_cannot_be_loaded_says_why(
    server: TorchServe, mar: Mar, tmp_path: Path, packed: Pack, damage: str, words: str, inside: str
) -> None:
    package = packed("raises") if damage == "raises" else tmp_path / "truncated.ptpkg"
    if damage == "truncated":
        package.write_bytes(packed("linear").read_bytes()[:-500])
    archive = mar(server, damage, package)
    answer = server.register(archive)
    assert answer.status == (500 if damage == "raises" else 400)
    assert f"Failed to start workers for model {damage}" in answer.text
    wait_for_log(server, f"Model '{damage}' could not be loaded")
    log = server.model_log()
    line = next(line for line in log.splitlines() if f"Model '{damage}' could not be loaded" in line)
    assert words in line
    assert package.name in line or damage == "raises"
    assert server.predict(inside, {}).status == 200


def test_an_unknown_setting_is_refused_by_name(server: TorchServe, mar: Mar) -> None:
    archive = mar(server, "misspelt", "linear", config="interpool: {interpeters: 3}\n")
    assert server.register(archive).status == 400
    wait_for_log(server, "unknown setting `interpool.interpeters`")


def test_the_async_protocol_is_refused(server: TorchServe, mar: Mar) -> None:
    config = "asyncCommunication: true\nparallelLevel: 1\n"
    archive = mar(server, "async", "linear", config=config)
    assert server.register(archive).status == 500
    wait_for_log(server, "asyncCommunication is not supported")


# ---- beside the pool -----------------------------------------------------------------------


def test_a_model_that_is_not_hermetic_is_served_by_the_stock_worker(
    server: TorchServe, mar: Mar, tmp_path: Path
) -> None:
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"")
    stock = Path(__file__).with_name("stock_handler.py")
    archive = mar(server, "stock", weights, handler=stock)
    assert server.register(archive).status == 200
    found = server.predict("stock", {}).json
    assert found["pid"] == server.describe("stock")[0]["workers"][0]["pid"]
    assert found["interpool"] == []
    (installed,) = importlib.util.find_spec("ts").submodule_search_locations  # type: ignore[union-attr]
    assert found["ts"] == f"{installed}/__init__.py"
    assert server.unregister("stock").status == 200


def test_unregistering_leaves_nothing(server: TorchServe, mar: Mar) -> None:
    archive = mar(server, "gone", "linear")
    assert server.register(archive, initial_workers=2).status == 200
    workers = [worker["pid"] for worker in server.describe("gone")[0]["workers"]]
    assert server.unregister("gone").status == 200
    wait_for(lambda: not any(map(psutil.pid_exists, workers)), "its shims to end")
    wait_for(lambda: server.sockets() == [], "its sockets to go")
