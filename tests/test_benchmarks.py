"""Benchmarks run, check what they time, and keep what they measured. How fast it is, they say themselves."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import otf
import pytest
from benchmarks import BENCHMARKS, measured
from paths import ROOT
from waiting import wait_for

sys.path.insert(0, str(ROOT / "scripts/benchmarks"))

import scaling
import scaling_plot
import scaling_suite


def test_session_measures_calls_and_tensors_of_every_size(tmp_path: Path) -> None:
    result, _ = measured(tmp_path, "session", "--rounds", "4", "--calls", "20")
    sizes = [f"tensor of {size:,}" for size in (10, 1_000, 100_000, 10_000_000)]
    assert list(result["measured"]) == [
        "plain call",
        "lease",
        "call in an open session",
        "by hand",
        "call of a movable object",
        *sizes,
    ]
    assert all(len(values) == 4 and min(values) > 0 for values in result["measured"].values())
    assert min(result["over_plain_us"].values()) > 0
    assert result["large_over_small"] > 0


SCALING = {
    "model": "m",
    "graph": "trace",
    "rates": {
        "interpreters": {1: [100.0, 110.0], 2: [190.0, 200.0]},
        "one interpreter": {1: [100.0, 100.0], 2: [80.0, 100.0]},
        "graph": {1: [100.0, 100.0], 2: [200.0, 200.0]},
        "processes": {1: [100.0, 100.0], 2: [200.0, 200.0]},
        "forked processes": {1: [100.0, 100.0], 2: [200.0, 200.0]},
    },
}  # fmt: skip


def test_scaling_is_judged_by_what_the_same_number_of_processes_reach() -> None:
    small, big = (
        scaling_suite.Curves(**SCALING, cpu={"processes": {1: [seconds]}})  # type: ignore[arg-type]
        for seconds in (0.001, 0.1)
    )
    bars, control = scaling_suite.judged([small, big], 2)
    assert control == pytest.approx(1.0)
    found = {bar.name.partition(",")[0]: bar.ratio for bar in bars}
    assert found == {
        "interpreters over processes": pytest.approx(0.975),
        "interpreters over one interpreter": pytest.approx((190 / 80 + 2) / 2),  # of the small one
        "interpreters over TorchScript": pytest.approx(0.975),  # of the big one
    }
    assert [bar.met for bar in bars] == [True, True, False]


def test_the_widths_of_scaling_go_to_twice_the_cores() -> None:
    assert [scaling.doubled(most) for most in (2, 4, 12)] == [[1, 2], [1, 2, 4], [1, 2, 4, 8, 12]]


def test_a_figure_of_scaling_is_drawn_alike_from_measurements_and_from_what_is_kept(tmp_path: Path) -> None:
    texts = []
    for number, suite in enumerate(([SCALING] * 7, json.loads(json.dumps([SCALING] * 7)))):
        file = tmp_path / f"{number}.svg"
        scaling_plot.draw(suite, file)
        texts.append(file.read_text())
    assert texts[0] == texts[1]
    assert texts[0].startswith("<?xml")


@pytest.mark.long
def test_scaling_measures_a_model_of_the_store_in_five_ways(tmp_path: Path) -> None:
    result, _ = measured(
        tmp_path, "scaling", "--models", "dlrm", "--threads", "1", "2", "--rounds", "2",
        "--seconds", "0.05", "--plot", str(tmp_path / "figure.svg"),
    )  # fmt: skip
    (curves,) = result["suite"]
    assert (curves["model"], curves["graph"]) == ("dlrm", "trace")
    ways = {"interpreters", "one interpreter", "graph", "processes", "forked processes"}
    for what in ("rates", "cpu"):
        assert curves[what].keys() == ways
        assert all(by_width.keys() == {"1", "2"} for by_width in curves[what].values())
    assert all(len(each) == 2 and min(each) > 0 for way in curves["rates"].values() for each in way.values())
    assert min(curves["memory"].values()) > 0
    assert (tmp_path / "figure.svg").stat().st_size > 1000


@pytest.mark.parametrize("lines", [False, True])
def test_the_backend_that_answers_at_once_speaks_torchserves_protocol(tmp_path: Path, lines: bool) -> None:
    address = tmp_path / "s.9000"
    command = [sys.executable, str(BENCHMARKS / "rest_at_once.py"), "--sock-type", "unix", "--sock-name"]
    environment = {**os.environ, "REST_LINES": "yes" if lines else ""}
    with (
        subprocess.Popen([*command, str(address)], stdout=subprocess.PIPE, env=environment) as worker,
        socket.socket(socket.AF_UNIX) as frontend,
    ):
        wait_for(address.exists, "the worker")
        frontend.settimeout(60)
        frontend.connect(str(address))

        def ask(message: bytes) -> bytes:
            frontend.sendall(message)
            answer = b""
            while not answer.endswith(otf.integer(-1)):
                answer += frontend.recv(1 << 16)
            return answer

        assert ask(otf.load("m")) == otf.integer(200) + otf.field("loaded model m") + otf.integer(-1)
        answers = b"".join(
            otf.field(f"request-{number}")
            + otf.field("")
            + otf.integer(200)
            + otf.field("")
            + otf.integer(0)
            + otf.field("ok")
            for number in range(2)
        )
        for body in (b"x", bytes(1 << 20)):
            batch = otf.predict(body, b"y", headers={"a": "b"})
            expected = otf.integer(200) + otf.field("Prediction success") + answers + otf.integer(-1)
            assert ask(batch) == expected
        frontend.shutdown(socket.SHUT_RDWR)
        assert worker.wait(60) == 0
        assert worker.stdout
        said = worker.stdout.read().decode().partition("Python runtime: 3\n")[2]
    received = r"Backend received inference at: \d+\n"
    metric = r"\[METRICS\]PredictionTime\.Milliseconds:0\.01\|#ModelName:m,Level:Model\|#type:GAUGE\|"
    assert re.fullmatch(rf"({received}{metric}#hostname:\S+,\d+,request-0,request-1\n){{2}}" * lines, said)
