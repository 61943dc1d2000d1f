"""A request is answered as the model answers it alone, also in a batch and after other requests.

Models are proven, and served, by the code that does so for users; ``--long`` also packs them as users do.
What they are to answer is what they answer when they are called in this process.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import otf
import own_answer_models as models
import pytest
import torch
from archives import add_manifest, manifest_of, module_records, read_members
from extracted import extracted, token
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from many_examples import EXAMPLES
from own_answers import JSON, KINDS, Answered, Asked, Kind, alone, batches, read, same
from proving import TORCH
from torch.package import PackageExporter

from interpool.archiver_ext.packing.pack import pack
from interpool.archiver_ext.packing.serving_choices import Choices
from interpool.archiver_ext.packing.write.members import add_request
from interpool.archiver_ext.packing.write.pickle_globals import pickle_globals
from interpool.archiver_ext.verify.self_test import Sample, answer
from interpool.handler.backend.serve_check import find_request
from interpool.handler.host.service_entry import SERVICE_FUNCTION, SERVICE_MODULE
from interpool.native import InterpreterManager, InterpreterSession, PyObj
from interpool.native.archive.format import SERVED_PLAINLY, Batches, EntryKind, SelfTest

ROUNDS = max(EXAMPLES // 5, 1)
TEST: SelfTest = {"package": "p", "resource": "r", "seed": 0, "rtol": 1e-4, "atol": 1e-5}
SAID: dict[str, Batches] = {
    "double": "each",
    "linear": "batch",
    "detector": "batch",
    "each_by_itself": "batch",
}
CASES = [(kind, None) for kind in KINDS] + [(kind, SAID[kind.name]) for kind in KINDS if kind.name in SAID]
Make = Callable[[Path, Kind, Batches | None], None]


@pytest.fixture(scope="module")
def sessions() -> Iterator[list[InterpreterSession]]:
    with InterpreterManager(2) as pool, pool.acquire_session() as one, pool.acquire_session() as other:
        yield [one, other]


def proven(path: Path, kind: Kind, said: Batches | None, model: Any = None) -> None:
    """An archive with a proof, without what packing finds out about modules."""
    entry, inputs = model or kind.model, Sample.of(getattr(models, kind.inputs)())
    of: EntryKind = "module" if isinstance(entry, torch.nn.Module) else "callable"
    with PackageExporter(str(path)) as exporter:
        exporter.extern("torch.**")
        exporter.save_source_string(models.__name__, Path(str(models.__file__)).read_text())
        exporter.save_pickle("interpool-archive", "entry.pkl", entry)
    members = read_members(path)
    externs = members[".data/extern_modules"].decode().split()
    serving: Any = {**SERVED_PLAINLY, "batches": said, "train_mode": kind.train_mode}
    fields = {
        "entry": {"package": "interpool-archive", "resource": "entry.pkl", "kind": of},
        "externs": [TORCH],
        "modules": module_records(externs, {models.__name__: ()}),
        "globals": pickle_globals(path, externs),
        "inputs": inputs.describe(),
        "serving": serving,
    }
    add_manifest(path, manifest_of(members, **fields))
    held = {"args": inputs.args, "kwargs": inputs.kwargs}
    held["expected"] = answer(entry, of, inputs, serving=serving)
    found = find_request(lambda: copy.deepcopy(entry), of, held, TEST, serving).found
    assert found is not None
    add_request(path, found)


def packed(path: Path, kind: Kind, said: Batches | None) -> None:
    """An archive as users make it."""
    choices = Choices(batches=said, train_mode=kind.train_mode or None)
    spec, root = f"{models.__name__}:", Path(str(models.__file__)).parent
    pack(spec + kind.name, path, root=root, inputs=spec + kind.inputs, serving=choices)


class Served:
    """An archive that a worker's connection has in each interpreter.

    Attributes:
        way: how requests become calls.
    """

    def __init__(self, folder: Path, sessions: list[InterpreterSession], log: int) -> None:
        extracted(folder, serializedFile="m.ptpkg")
        manifest = read_members(folder / "m.ptpkg")["interpool-archive/manifest.json"]
        self.way = json.loads(manifest)["serving"]["batches"]
        worker = token(log).as_text()
        load = otf.load("m", str(folder), handler="interpool_handler.py")
        self._sessions = sessions
        self._services: list[PyObj] = [
            session.global_(SERVICE_MODULE, SERVICE_FUNCTION)(worker, load) for session in sessions
        ]

    def ask(self, interpreter: int, batch: list[Asked]) -> list[Answered]:
        """What each request of a batch is answered, by one of the interpreters."""
        answer = self._services[interpreter](otf.predict_each(*(asked.fields for asked in batch)))
        reply = self._sessions[interpreter].global_("builtins", "bytes")(answer[0]).to_value()
        found = otf.answers(reply)
        return [read(*found[f"request-{number}"]) for number in range(len(batch))]


@pytest.mark.parametrize("make", [proven, pytest.param(packed, marks=pytest.mark.long)])
@pytest.mark.parametrize(("kind", "said"), CASES, ids=[f"{kind.name}-{said}" for kind, said in CASES])
def test_every_request_is_answered_as_if_it_were_alone(
    sessions: list[InterpreterSession], tmp_path: Path, kind: Kind, said: Batches | None, make: Make
) -> None:
    make(tmp_path / "m.ptpkg", kind, said)
    with open(os.devnull, "wb") as log:
        served = Served(tmp_path, sessions, log.fileno())
        assert served.way == (said or kind.way)

        @settings(max_examples=ROUNDS, deadline=None, suppress_health_check=[*HealthCheck])
        @given(st.integers(0, 1), batches(kind))
        def answers_are_own(interpreter: int, batch: list[Asked]) -> None:
            got = served.ask(interpreter, batch)
            for asked, answered in zip(batch, got, strict=True):
                expected = alone(kind, served.way, asked)
                assert same(expected, answered, kind.rtol), f"{asked.call}: {expected}, not {answered}"

        answers_are_own()


def test_requests_like_the_one_in_the_archive_share_a_call(
    sessions: list[InterpreterSession], tmp_path: Path
) -> None:
    noted, like, unlike = tmp_path / "noted", b"[1.0, 2.0, 3.0, 4.0]", b"[1.0, 2.0]"
    proven(tmp_path / "m.ptpkg", KINDS[0], None, models.Noted(str(noted)))
    noted.unlink()
    with open(os.devnull, "wb") as log:
        served = Served(tmp_path, sessions, log.fileno())
        for body in (like, unlike):
            answers = served.ask(0, [Asked({"body": (JSON, body)})] * 3)
            assert [answer.value for answer in answers] == [[2 * x for x in json.loads(body)]] * 3
    assert noted.read_text().split() == ["3", "1", "1", "1"]
