"""What a host remembers of its models."""

from __future__ import annotations

from pathlib import Path

import pytest

from interpool.handler.host import served_models
from interpool.handler.host.served_models import End, ServedModel, ServedModels
from interpool.handler.worker_reports import Report


def test_a_worker_in_anothers_place_is_a_restart_and_a_further_one_is_not() -> None:
    model = ServedModel("m/1.0")
    model.worker_began("unix:/1")
    model.worker_began("unix:/2")
    assert (model.worker_starts, model.worker_restarts) == (2, 0)
    model.worker_ended("unix:/1", End.MODEL_EXIT)
    model.worker_began("unix:/1")
    assert (model.worker_starts, model.worker_restarts) == (3, 1)
    assert model.describe()["worker_ends"] == {"model_exit": 1}


def test_a_place_is_forgotten_when_torchserve_would_have_filled_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ServedModel("m/1.0")
    monkeypatch.setattr(served_models, "RESTART_S", 0.0)
    for _ in range(2):
        model.worker_began("unix:/1")
        model.worker_ended("unix:/1", End.MODEL_EXIT)
    assert (model.worker_starts, model.worker_restarts) == (2, 0)


@pytest.mark.parametrize(
    ("why", "awaited"), [(End.MODEL_EXIT, 1), (End.LOAD_FAILED, 1), (End.DISCONNECTED, 0)]
)
def test_a_worker_that_failed_is_awaited_and_one_that_torchserve_ended_is_not(why: End, awaited: int) -> None:
    model = ServedModel("m/1.0")
    model.worker_began("unix:/1")
    model.worker_ended("unix:/1", why)
    assert model.describe()["workers_awaited"] == awaited
    model.worker_began("unix:/1")
    assert model.describe()["workers_awaited"] == 0


def test_no_worker_is_awaited_and_no_failure_counts_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ServedModel("m/1.0")
    model.worker_ended("unix:/1", End.LOAD_FAILED)
    model.note(Report("load_failed", 7, 1, 0.1, "no memory"))
    monkeypatch.setattr(served_models, "RESTART_S", 0.0)
    described = model.describe()
    assert (described["workers_awaited"], described["failed_lately"], described["reason"]) == (
        0,
        False,
        "no memory",
    )


def test_a_load_that_succeeds_ends_what_one_that_failed_said() -> None:
    model = ServedModel("m/1.0")
    model.note(Report("load_failed", 7, 1, 0.1, "no memory"))
    model.note(Report("not_started", 7, 1))
    assert (model.failed_loads, model.reason) == (1, "no memory")
    model.note(Report("loaded", 7, 2, 0.5))
    assert (model.loads, model.load_s, model.reason) == (1, 0.5, "")


def test_models_that_are_gone_leave_their_counts_by_name(tmp_path: Path) -> None:
    found = ServedModels()
    for number in (1, 2):
        directory = tmp_path / str(number)
        directory.mkdir()
        found.register(str(directory), "m/1.0").note(Report("load_failed", 7, 1, 0.1, f"reason {number}"))
        directory.rmdir()
        found.forget()
    gone = found.gone()
    assert (gone["m/1.0"]["failed_loads"], gone["m/1.0"]["reason"]) == (2, "reason 2")
    assert found.here() == {}


def test_a_registration_that_succeeded_does_not_take_an_earlier_ones_reason(tmp_path: Path) -> None:
    found = ServedModels()
    for report in (Report("load_failed", 7, 1, 0.1, "no memory"), Report("loaded", 7, 1, 0.1)):
        directory = tmp_path / report.kind
        directory.mkdir()
        found.register(str(directory), "m/1.0").note(report)
        directory.rmdir()
        found.forget()
    gone = found.gone()["m/1.0"]
    assert (gone["loads"], gone["failed_loads"], gone["reason"]) == (1, 1, "")


def test_names_are_not_kept_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_models, "GONE_LIMIT", 2)
    found = ServedModels()
    for name in "abc":
        found.register(str(tmp_path / "nowhere"), name)
        found.forget()
    assert list(found.gone()) == ["b", "c"]
