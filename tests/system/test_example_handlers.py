"""Models with TorchServe's own handlers, and with handlers like its examples', share interpreters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_server import TorchServe
from system.comparison.archive import Archive
from system.comparison.building import build
from system.comparison.exchange import send
from system.comparison.kinds import examples, loading, shipped_handlers

pytestmark = pytest.mark.long

ARCHIVES = [*shipped_handlers.ARCHIVES, *loading.ARCHIVES, *examples.ARCHIVES]
ROUNDS = 3  # the first call in an interpreter is looked at thoroughly


@pytest.fixture(scope="module")
def server() -> Iterator[TorchServe]:
    with TorchServe(environment={"INTERPOOL_ORDINARY_ARCHIVES": "pool"}) as running:
        yield running


@pytest.mark.parametrize("archive", ARCHIVES, ids=[archive.name for archive in ARCHIVES])
def test_an_example_handler_shares_interpreters(server: TorchServe, archive: Archive, tmp_path: Path) -> None:
    answer = server.register(f"file://{build(archive, tmp_path)}", timeout=300, **archive.options)
    assert answer.status == 200, f"{answer.text}\n{server.model_log()[-3000:]}"
    for _ in range(ROUNDS):
        answers = [each.status for step in archive.requests for each in send(server, archive.name, step)]
        assert answers == list(archive.statuses), server.model_log()[-3000:]
    assert _owners(server, archive.name) == [None, None], server.model_log()[-3000:]
    server.unregister(archive.name)


def _owners(server: TorchServe, name: str) -> list[str | None]:
    """Of the interpreters of the pool that serves the model."""
    (pool,) = [
        state
        for state in server.pools().values()
        if any(one["model"].startswith(f"{name}/") for one in state["workers"])
    ]
    return [one["owner"] for one in pool["interpreters"]["interpreters"]]
