"""Weights of a model: one copy in memory for all interpreters, and no writes of another interpreter."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from archives import build_package, build_scale
from interpool_testing import Code, every_interpreter
from mappings import Snapshots, open_files
from waiting import wait_for

from interpool.native import InterpreterManager, InterpreterSession

MIB = 2**20
SIZE = 4 * MIB  # floats
BYTES = 4 * SIZE
ARCHIVE = "interpool.native.inside.packages"


@pytest.fixture
def snapshots() -> Snapshots:
    """What the test has had mapped, and no other."""
    return Snapshots()


@pytest.fixture
def archive(tmp_path: Path, manager: InterpreterManager, snapshots: Snapshots) -> Iterator[Path]:
    path = build_scale(tmp_path / "weights.pt", 2, size=SIZE)
    yield path
    forget(manager, path)


def forget(manager: InterpreterManager, path: Path) -> None:
    with every_interpreter(manager) as sessions:
        for session in sessions:
            session.global_(ARCHIVE, "close_package")(str(path))
            session.global_("gc", "collect")()


def load(session: InterpreterSession, path: Path) -> Any:
    return session.global_(ARCHIVE, "load_object")(str(path), "model", "model.pkl")


def total(model: Any) -> float:
    value: float = model.attr("weight").attr("sum")().attr("item")().to_value()
    return value


@pytest.mark.long
def test_four_interpreters_hold_one_copy_of_the_weights(
    snapshots: Snapshots, manager: InterpreterManager, archive: Path
) -> None:
    with every_interpreter(manager) as sessions:
        models = [load(session, archive) for session in sessions]
        assert [total(model) for model in models] == [2.0 * SIZE] * len(models)  # every page is touched
        maps = snapshots(BYTES)
        assert len(maps) == len(sessions)
        assert sum(mapping.kib["Private_Dirty"] for mapping in maps) <= 64
        one_copy = BYTES // 1024
        assert one_copy <= sum(mapping.kib["Pss"] for mapping in maps) <= 1.05 * one_copy
        # The control: without sharing, each would count for all of it.
        assert sum(mapping.kib["Rss"] for mapping in maps) >= len(sessions) * one_copy


@pytest.mark.long
def test_torchscript_modules_in_an_archive_have_mapped_weights_too(
    snapshots: Snapshots, manager: InterpreterManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.package.package_exporter._gate_torchscript_serialization", False)
    maker = f"""
        import torch

        class Wide(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.full(({SIZE},), 2.0))

            def forward(self, x):
                return x + self.weight.sum()

        def make():
            return torch.jit.script(Wide())
        """
    path = build_package(tmp_path / "scripted.pt", {"scripted_model.py": maker}, "scripted_model:make")
    with every_interpreter(manager) as sessions:
        models = [load(session, path) for session in sessions]
        answers = [model(torch.zeros(1)).to_value().item() for model in models]
        assert answers == [2.0 * SIZE] * len(models)
        maps = snapshots(BYTES)
        assert sum(mapping.kib["Pss"] for mapping in maps) >= BYTES // 1024  # every page was read, from there
        assert sum(mapping.kib["Private_Dirty"] for mapping in maps) <= 64
    del models
    forget(manager, path)
    wait_for(lambda: not snapshots(BYTES), "its memory to be given back")


def test_a_write_in_one_interpreter_is_seen_in_no_other_and_not_in_the_file(
    snapshots: Snapshots, manager: InterpreterManager, archive: Path
) -> None:
    before = hashlib.sha256(archive.read_bytes()).digest()
    with every_interpreter(manager) as sessions:
        models = [load(session, archive) for session in sessions]
        weights = [model.attr("weight").attr("detach")() for model in models]
        weights[0].attr("__setitem__")(0, 100)
        firsts = [weight.attr("__getitem__")(0).attr("item")().to_value() for weight in weights]
        assert firsts == [100] + [2] * (len(models) - 1)
        for model in models[1:]:
            assert total(model) == 2.0 * SIZE
        dirty = sorted(mapping.kib["Private_Dirty"] for mapping in snapshots(BYTES))
        assert dirty[:-1] == [0] * (len(models) - 1)
        assert 0 < dirty[-1] <= 64  # a page, and not the whole
    assert hashlib.sha256(archive.read_bytes()).digest() == before


def test_a_write_to_an_object_of_ones_own_is_seen_in_no_other_object(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    path = build_scale(tmp_path / "own.pt", 2)
    with manager.acquire_session(timeout=60) as session:
        package = session.global_(ARCHIVE, "open_package")(str(path))

        def first(model: Any) -> Any:
            return model.attr("weight").attr("detach")().attr("__getitem__")(0).attr("item")().to_value()

        own = package.attr("make")("model", "model.pkl")
        own.attr("weight").attr("detach")().attr("__setitem__")(0, 100)
        others = [package.attr(how)("model", "model.pkl") for how in ("load_pickle", "make")]
        assert [first(model) for model in (own, *others)] == [100, 2, 2]
        # And the other way round.
        others[0].attr("weight").attr("detach")().attr("__setitem__")(0, 50)
        assert first(package.attr("make")("model", "model.pkl")) == 2
        del package, own, others
    forget(manager, path)


@pytest.mark.long
def test_weights_taken_out_to_the_host_are_the_same_memory_and_stay(
    snapshots: Snapshots, manager: InterpreterManager, archive: Path
) -> None:
    with manager.acquire_session(timeout=60) as session:
        model = load(session, archive)
        weight = model.attr("weight").to_value()
        assert weight.data_ptr() == model.attr("weight").attr("data_ptr")().to_value()
        del model
    forget(manager, archive)
    assert weight[-1].item() == 2.0
    assert len(snapshots(BYTES)) == 1
    del weight
    gc.collect()
    wait_for(lambda: not snapshots(BYTES), "its memory to be given back")


def test_a_package_without_references_gives_its_memory_and_files_back(
    snapshots: Snapshots, manager: InterpreterManager, tmp_path: Path
) -> None:
    path = build_scale(tmp_path / "dropped.pt", 2, size=SIZE)
    files = open_files()
    package = manager.load_package(path)
    model = package.load_pickle("model", "model.pkl")
    del package
    assert model(torch.ones(2)).tolist() == [2, 2]
    assert snapshots(BYTES)
    del model
    wait_for(lambda: not snapshots(BYTES), "its memory to be given back")
    wait_for(lambda: open_files() <= files, "its files to be closed")


def test_an_archive_opened_twice_is_copied_and_mapped_once(
    snapshots: Snapshots, manager: InterpreterManager, archive: Path
) -> None:
    with manager.acquire_session(timeout=60) as session:
        assert session.global_("operator", "is_")(load(session, archive), load(session, archive)).to_value()
    assert len(snapshots(BYTES)) == 1


def test_tied_weights_views_and_dtypes_survive_the_archive(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    path = build_package(
        tmp_path / "tied.pt",
        {
            "tied_model.py": """
                import torch

                class Tied(torch.nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.one = torch.nn.Linear(4, 4)
                        self.other = torch.nn.Linear(4, 4)
                        self.other.weight = self.one.weight
                        self.register_buffer("small", torch.arange(8).to(torch.float16))
                        self.register_buffer("brain", torch.arange(8).to(torch.bfloat16))
                        self.register_buffer("flags", torch.tensor([True, False]))
                        self.register_buffer("turned", torch.arange(6).reshape(2, 3).t())
                        self.register_buffer("none", torch.empty(0))
                        self.register_buffer("wave", torch.tensor([1 + 2j]))
                        self.view = self.small[2:4]

                def make():
                    return Tied()
                """
        },
        "tied_model:make",
    )
    with manager.acquire_session(timeout=60) as session:
        describe = Code(
            session,
            """
            def plain(values):
                return str(values) if values and isinstance(values[0], complex) else values

            def describe(model):
                model.view.fill_(9)
                buffers = {
                    name: (str(buffer.dtype), plain(buffer.tolist()), buffer.stride())
                    for name, buffer in model.named_buffers()
                }
                return model.one.weight is model.other.weight, buffers
            """,
        )["describe"]
        tied, buffers = describe(load(session, path)).to_value()
    assert tied is True
    assert buffers == {
        "small": ("torch.float16", [0, 1, 9, 9, 4, 5, 6, 7], (1,)),
        "brain": ("torch.bfloat16", [0, 1, 2, 3, 4, 5, 6, 7], (1,)),
        "flags": ("torch.bool", [True, False], (1,)),
        "turned": ("torch.int64", [[0, 3], [1, 4], [2, 5]], (1, 3)),
        "none": ("torch.float32", [], (1,)),
        "wave": ("torch.complex64", "[(1+2j)]", (1,)),
    }
