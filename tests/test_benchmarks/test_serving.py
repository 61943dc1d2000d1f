"""The serving benchmark: it checks answers, says who cannot be compared, and keeps what it measured."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from bench import measured

from benchmarks.serving import benchmark as serving
from benchmarks.serving import environment, models, plot
from benchmarks.serving.frameworks import FRAMEWORKS, PACKED, STOCK


def figures(rate: float, memory: float, scaled: float) -> serving.Figures:
    """Of two rounds with two and with eight workers."""
    return serving.Figures(
        first_s=[3.0, 5.0],
        another_s=[1.0, 1.0],
        scaled_s=[scaled, scaled],
        rate={count: [rate * count, rate * count] for count in (2, 8)},
        p50_ms={count: [1.0, 2.0] for count in (2, 8)},
        p99_ms={count: [4.0, 4.0] for count in (2, 8)},
        workers_mb={count: [memory * count, memory * count] for count in (2, 8)},
        frontends_mb={count: [100.0, 100.0] for count in (2, 8)},
    )


def found() -> serving.Found:
    return serving.Found(
        figures={"small": {PACKED: figures(95.0, 10.0, 0.2), STOCK: figures(100.0, 160.0, 2.0)}},
        failed={"mosec": "cannot be installed: ERROR: no matching distribution\nfor mosec | 1"},
    )


def test_a_framework_that_cannot_be_compared_has_a_row_that_says_why() -> None:
    lines = serving.table(found(), [2, 8]).splitlines()
    assert len({line.count("|") for line in lines}) == 1  # a table
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    by_name = {cell[1]: dict(zip(cells[0], cell, strict=True)) for cell in cells[2:]}
    assert by_name[PACKED]["requests/s, 8 workers"] == "760"
    assert by_name[PACKED]["p50 / p99, ms"] == "1.5 / 4"
    assert by_name[STOCK]["memory: workers + frontends, MB"] == "1,280 + 100"
    assert by_name[STOCK]["start to first answer, s"] == "4.00"
    assert "no matching distribution for mosec" in by_name["mosec"]["requests/s, 2 workers"]


def test_a_program_that_has_to_be_restarted_is_said_to_be() -> None:
    results = found()
    results.figures["small"]["LitServe"] = figures(1.0, 1.0, 7.0)
    results.figures["small"]["LitServe"].restarts = True
    (line,) = [line for line in serving.table(results, [2, 8]).splitlines() if "LitServe" in line]
    assert "| 7.00 (restarted) |" in line


def test_interpool_is_judged_by_stock_torchserve_in_the_same_rounds() -> None:
    bars = {bar.name: bar for bar in serving.bars_of(found(), [2, 8])}
    assert bars[f"small: {PACKED}'s rate over stock's"].ratio == pytest.approx(0.95)
    assert bars[f"small: stock's workers' memory over {PACKED}'s"].ratio == pytest.approx(16)
    assert bars[f"small: stock's 1 to 8 workers over {PACKED}'s"].ratio == pytest.approx(10)
    assert all(bar.met for bar in bars.values())


def test_a_pool_that_fails_misses_a_bar() -> None:
    results = serving.Found(failed={PACKED: "small: WrongAnswerError: no"})
    (bar,) = serving.bars_of(results, [2])
    assert not bar.met


def test_stock_torchserve_that_fails_misses_a_bar_as_none_beside_it_is_left() -> None:
    alone = {"small": {PACKED: figures(95.0, 10.0, 0.2)}}
    compared = serving.bars_of(serving.Found(figures=alone, failed={STOCK: "small: OSError: no"}), [2, 8])
    assert [bar.name for bar in compared if not bar.met] == [f"{STOCK} could be compared"]
    not_asked_for = serving.bars_of(serving.Found(figures=alone), [2, 8])
    assert all(bar.met for bar in not_asked_for)


def test_a_wrong_answer_is_told_from_a_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    right = models.build("small").answer(models.REQUEST)
    for said, wrong in ((right, False), ({"y": [0.5] * 16}, True)):
        body = json.dumps(said).encode()
        monkeypatch.setattr(serving, "ask", lambda _url, _request, body=body: (body, json.loads(body)))
        if wrong:
            with pytest.raises(serving.WrongAnswerError, match="which is not"):
                serving.right_answer("small", "http://nowhere")
        else:
            assert serving.right_answer("small", "http://nowhere") == body


@pytest.mark.parametrize("model", list(models.MODELS))
def test_every_model_answers_alike_each_time(model: str) -> None:
    one, another = (models.build(model).answer(models.REQUEST) for _ in range(2))
    assert one == another
    assert len(one["y"]) in (10, 16)
    assert models.build(model).answer(models.WHO) == {"pid": os.getpid()}


def test_both_figures_are_drawn_alike_from_measurements_and_from_what_is_kept(tmp_path: Path) -> None:
    measured: dict[str, Any] = {
        model: {name: asdict(each) for name, each in by_name.items()}
        for model, by_name in found().figures.items()
    }
    texts = []
    for number, some in enumerate((measured, json.loads(json.dumps(measured)))):
        files = plot.draw(some, tmp_path / str(number))
        assert [file.name for file in files] == ["serving-rates.svg", "serving-cost.svg"]
        texts.append([file.read_text() for file in files])
    assert texts[0] == texts[1]
    assert plot.draw({}, tmp_path / "nothing") == []


def wheel(folder: Path) -> Path:
    """A distribution of one module, which tells where torch is."""
    files = {
        "shown_by_test.py": "import importlib.util\nprint(importlib.util.find_spec('torch').origin)\n",
        "shown_by_test-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: shown-by-test\nVersion: 1\n",
        "shown_by_test-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }

    def digest(text: str) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()

    record = "shown_by_test-1.dist-info/RECORD"
    listed = [f"{name},sha256={digest(text)},{len(text)}\n" for name, text in files.items()]
    path = folder / "shown_by_test-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (*files.items(), (record, "".join([*listed, f"{record},,\n"]))):
            archive.writestr(name, text)
    return path


def test_an_environment_has_its_own_packages_and_the_torch_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "ENVIRONMENTS", tmp_path / "environments")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    pins = (str(wheel(tmp_path)),)
    python = environment.python_of(pins)
    assert tmp_path in python.parents
    printed = subprocess.run(
        [str(python), "-m", "shown_by_test"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    import torch

    assert printed.stdout.strip() == torch.__file__
    assert environment.versions_in(python) == {"shown-by-test": "1"}
    made = python.stat().st_ctime_ns
    assert environment.python_of(pins).stat().st_ctime_ns == made  # and is kept


def test_what_cannot_be_installed_is_said_with_pips_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "ENVIRONMENTS", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(environment.CannotBeInstalledError, match="nothing-of-that-name"):
        environment.python_of(("nothing-of-that-name==1",))


def run(results: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    return measured(results, "serving", "--rounds", "1", "--seconds", "0.3", "--warm", "0.1", *arguments)


@pytest.mark.long
def test_serving_measures_a_pool_over_http(tmp_path: Path) -> None:
    result, printed = run(tmp_path, "--only", "small", "--frameworks", PACKED, "--workers", "2")
    assert result["failed"] == {}
    figures = result["figures"]["small"][PACKED]
    for what in ("rate", "p50_ms", "p99_ms", "workers_mb", "frontends_mb"):
        ((workers, values),) = figures[what].items()
        assert (workers, len(values)) == ("2", 1)
        assert values[0] > 0, what
    assert all(len(figures[what]) == 1 for what in ("first_s", "another_s", "scaled_s"))
    assert "\n".join(result["table"]) in printed
    for name in ("serving-rates.svg", "serving-cost.svg"):
        assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.long
def test_serving_measures_every_framework_over_http(tmp_path: Path) -> None:
    result, _ = run(tmp_path, "--workers", "1", "2")
    assert result["failed"] == {}
    for by_name in result["figures"].values():
        assert list(by_name) == list(FRAMEWORKS)
