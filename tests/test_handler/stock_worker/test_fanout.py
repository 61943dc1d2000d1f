"""A hermetic model in a stock worker: the handler file and the worker's own pool, without a TorchServe."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ts
from extracted import METRICS, extracted
from proving import build_archive
from ts.context import Context, RequestProcessor

from interpool.handler import interpool_handler
from interpool.handler.interpool_handler import HermeticHandler
from interpool.native.errors import SignatureError

Make = Callable[..., tuple[HermeticHandler, Any]]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Make]:
    """Makes a packed model and TorchServe's context for it, and ends the handler's pool."""
    handler = HermeticHandler()

    def make(entry: str, settings: str = "") -> tuple[HermeticHandler, Any]:
        build_archive(tmp_path / "m.ptpkg", tmp_path / "canary", entry=entry)
        names = {"serializedFile": "m.ptpkg", "configFile": "c.yaml"}
        manifest = {"model": {"modelName": "m", **names}}
        (extracted(tmp_path, **names) / "c.yaml").write_text(f"interpool: {{interpreters: 2{settings}}}")
        metrics = SimpleNamespace(config_file_path=METRICS)
        return handler, Context("m", str(tmp_path), manifest, 4, None, ts.__version__, True, metrics, {})

    yield make
    if hasattr(handler, "_model"):
        handler._model._manager.close()


def ask(handler: HermeticHandler, context: Any, *bodies: object) -> list[tuple[int, str]]:
    context.request_ids = {index: f"request-{index}" for index in range(len(bodies))}
    context.request_processor = [RequestProcessor({}) for _ in bodies]
    answers = handler.handle([{"body": body} for body in bodies], context)
    return [(context.get_response_status(i)[0], answer) for i, answer in enumerate(answers)]


@pytest.mark.long
def test_a_batch_is_answered_in_shards_and_in_order(made: Make) -> None:
    handler, context = made("Model", ", tracebacks: true")
    handler.initialize(context)
    answers = ask(handler, context, [1.0, 1, 1], [[1.0], [1, 2]], [0.0, 0, 1], [1.0])
    assert [status for status, _ in answers] == [200, 400, 200, 503]
    assert [json.loads(answers[index][1]) for index in (0, 2)] == [[3.0, 12.0], [2.0, 5.0]]
    assert "not a rectangular array" in answers[1][1]
    assert "Traceback (most recent call last)" in answers[3][1]  # as the settings say


def test_a_worker_with_a_state_of_its_own_has_it_in_one_interpreter(made: Make) -> None:
    """Else a sequence's requests, all of which TorchServe sends to one worker, would meet several states."""
    handler, context = made("Counts", ", state: worker")
    handler.initialize(context)
    assert ask(handler, context, "a", "b") == [(200, "2"), (200, "2")]
    assert ask(handler, context, "c") == [(200, "3")]


def test_an_archive_must_prove_itself_there_too(
    made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN PUBLIC KEY-----\n")
    monkeypatch.setenv("INTERPOOL_SIGNATURE_KEYS", str(key))
    handler, context = made("Model")
    with pytest.raises(SignatureError, match=r"\[unsigned\]"):
        handler.initialize(context)
    assert not (tmp_path / "canary").exists()


# A copy of the handler file as the first archives hold it: what TorchServe runs there.
FIRST_HANDLER_FILE = """
class HermeticHandler:
    def initialize(self, context):
        from interpool.handler.model import open_model
        self._model = open_model(context)

    def handle(self, data, context):
        return self._model.handle(data, context)
"""


def test_the_handler_file_of_an_archive_that_was_made_before_still_serves(made: Make) -> None:
    names: dict[str, Any] = {}
    exec(FIRST_HANDLER_FILE, names)
    handler, context = made("Model")
    copy = names["HermeticHandler"]()
    copy.initialize(context)
    handler._model = copy._model  # ends with the test
    assert [json.loads(answer) for _, answer in ask(copy, context, [1.0, 1, 1])] == [[3.0, 12.0]]


def test_the_handler_file_imports_nothing_but_the_name_that_stays() -> None:
    tree = ast.parse(Path(str(interpool_handler.__file__)).read_text())
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    assert {(node.module, alias.name) for node in imported for alias in node.names} == {
        ("__future__", "annotations"),
        ("typing", "Any"),
        ("interpool.handler.model", "open_model"),
    }
