"""The serving benchmark: what it measured is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench import measured

from benchmarks.serving import frameworks, models, tensors
from benchmarks.serving.frameworks import FRAMEWORKS, MOSEC, PACKED, Program, posted


def test_a_wrong_answer_is_distinguished_from_a_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    right = models.build("small").answer(models.REQUEST)
    for said, wrong in ((right, False), ({"y": [0.5] * 16}, True)):
        body = json.dumps(said).encode()
        monkeypatch.setattr(frameworks, "ask", lambda _url, _request, body=body: (body, json.loads(body)))
        if wrong:
            with pytest.raises(frameworks.WrongAnswerError, match="which is not"):
                frameworks.right_answer("small", "http://nowhere")
        else:
            assert frameworks.right_answer("small", "http://nowhere") == body


def test_a_request_travels_in_a_tensor_to_servers_of_that_protocol_only() -> None:
    plain, in_a_tensor = (
        json.loads(posted(f"http://nowhere{path}", models.REQUEST))
        for path in ("/predict", "/v2/models/served/infer")
    )
    assert plain == models.REQUEST
    (tensor,) = in_a_tensor["inputs"]
    assert tensors.unwrapped({"outputs": [{"data": tensor["data"]}]}) == models.REQUEST


def test_servers_that_have_one_model_are_started_once_for_each() -> None:
    several = {
        name for name, each in FRAMEWORKS.items() if not isinstance(each, Program) or each.kind.several
    }
    assert FRAMEWORKS.keys() - several == {"FastAPI", "granian", "LitServe", MOSEC, "BentoML"}


def run(results: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    return measured(results, "serving", "--rounds", "1", "--seconds", "0.3", "--warm", "0.1", *arguments)


@pytest.mark.long
def test_serving_measures_a_pool_over_http(tmp_path: Path) -> None:
    result, _ = run(tmp_path, "--only", "small", "--frameworks", PACKED, "--workers", "2")
    assert result["failed"] == {}
    figures = result["figures"]["small"][PACKED]
    for what in ("rate", "p50_ms", "p99_ms", "workers_mb", "frontends_mb"):
        ((workers, values),) = figures[what].items()
        assert (workers, len(values)) == ("2", 1)
        assert values[0] > 0, what
    assert all(len(figures[what]) == 1 for what in ("first_s", "another_s", "scaled_s"))


@pytest.mark.long
def test_serving_measures_every_framework_over_http(tmp_path: Path) -> None:
    result, _ = run(tmp_path, "--workers", "1", "2")
    assert result["failed"] == {}
    for by_name in result["figures"].values():
        assert list(by_name) == list(FRAMEWORKS)


def check_together(results: Path, count: int, *arguments: str) -> None:
    """Run several models at once with two workers each; look at what is kept."""
    result, _ = run(results, "--together", str(count), "--workers", "2", *arguments)
    assert result["failed"] == {}
    assert result["benchmark"] == "serving-models"
    for by_name in result["figures"].values():
        for name, each in by_name.items():
            framework = FRAMEWORKS[name]
            own = isinstance(framework, Program) and not framework.kind.several
            assert each["servers"] == (count if own else 1)
            assert all(len(each[what]) == 1 for what in ("first_s", "all_s", "rate", "mb"))
            assert each["all_s"] >= each["first_s"]
            assert min(*each["first_s"], *each["rate"], *each["mb"]) > 0


@pytest.mark.long
def test_serving_measures_two_models_at_once_in_a_pool(tmp_path: Path) -> None:
    check_together(tmp_path, 2, "--only", "small", "bert", "--frameworks", PACKED)


@pytest.mark.long
def test_serving_measures_two_models_at_once_in_every_framework(tmp_path: Path) -> None:
    check_together(tmp_path, 2)
