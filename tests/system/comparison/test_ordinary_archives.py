"""Ordinary archives are served from the pool, and all that the front end offers works, as in stock."""

from __future__ import annotations

import difflib
import pprint
from collections.abc import Iterator
from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - a user's first process to import it, and no other, logs that it lists fonts
import pytest
from local_server import TorchServe
from system.comparison.archive import Archive
from system.comparison.building import build
from system.comparison.exchange import Exchange, send
from system.comparison.front import Way
from system.comparison.kinds import (
    answers,
    files_and_imports,
    loading,
    saying_and_measuring,
    shipped_handlers,
    state_and_process,
)
from system.comparison.logs import Said, said
from system.comparison.scenes import SCENES, Scene, Story
from system.comparison.servers import Pair, pair
from waiting import wait_for

pytestmark = pytest.mark.long

KINDS = (shipped_handlers, loading, files_and_imports, answers, saying_and_measuring, state_and_process)
ARCHIVES = [archive for kind in KINDS for archive in kind.ARCHIVES]


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    """TorchServe without interpool and with it."""
    with pair({"GIVEN_TO_SERVER": "yes"}, {"install_py_dep_per_model": "true"}) as running:
        yield running


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name)
def test_the_pool_answers_and_says_what_the_stock_worker_does(
    servers: Pair, archive: Archive, tmp_path: Path
) -> None:
    mar = build(archive, tmp_path)
    stock, pool = servers.both(lambda server: _Served(server, archive, mar))
    try:
        assert pool.runs_in_pool, pool.server.model_log()[-3000:]
        assert [answer.status for answer in stock.answers] == list(archive.statuses)
        for step, ours, theirs in zip(archive.steps, pool.answers, stock.answers, strict=True):
            assert ours == theirs, f"{step}:\n{_difference(str(theirs), str(ours))}"
        _same_words(stock, pool, archive)
    finally:
        servers.both(lambda server: server.unregister(archive.name))


class _Served:
    """An archive that was registered and asked all its requests."""

    def __init__(self, server: TorchServe, archive: Archive, mar: Path) -> None:
        self.server = server
        self.name = archive.name
        answer = server.register(f"file://{mar}", timeout=300, **archive.options)
        assert answer.status == 200, f"{answer.text}\n{server.model_log()[-3000:]}"
        self.loading = said(server, self.name)
        self.runs_in_pool = not any(map(_is_stock, server.describe(self.name)[0]["workers"]))
        self.answers: list[Exchange] = []
        for step in archive.requests:
            self.answers += send(server, self.name, step)

    def words(self, loading: Said, *, ordered: bool) -> Said:
        """What requests made it say. Loading's words are left out: each interpreter says them anew."""
        now = said(self.server, self.name)
        kept = (
            [line for line in lines if line not in before] for lines, before in zip(now, loading, strict=True)
        )
        return Said(*kept) if ordered else Said(*map(sorted, kept))


def _is_stock(worker: dict[str, object]) -> bool:
    """Whether a process is TorchServe's own worker: it has torch."""
    return "libtorch_cpu" in Path(f"/proc/{worker['pid']}/maps").read_text()


def _same_words(stock: _Served, pool: _Served, archive: Archive) -> None:
    ordered = not archive.unordered

    # TorchServe may write a line down after it has answered: what one of them has not said by then is
    # loading's all the same.
    loading = Said(*(theirs + ours for theirs, ours in zip(stock.loading, pool.loading, strict=True)))

    def difference() -> str:
        theirs, ours = stock.words(loading, ordered=ordered), pool.words(loading, ordered=ordered)
        all_theirs, all_ours = (Said(*map(_once, said(each.server, each.name))) for each in (stock, pool))
        return "\n".join(
            _difference(f"{name} " + f"\n{name} ".join(a), f"{name} " + f"\n{name} ".join(b))
            for name, a, b in (
                *zip(Said("stdout", "stderr", "metric"), theirs, ours, strict=True),
                *zip(Said("any stdout", "any stderr", "any metric"), all_theirs, all_ours, strict=True),
            )
            if (a != b if ordered else sorted(a) != sorted(b))
        )

    wait_for(lambda: not difference(), lambda: f"the same words\n{difference()}", pause=0.1)


def _once(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _difference(theirs: str, ours: str) -> str:
    lines = difflib.unified_diff(theirs.splitlines(), ours.splitlines(), "stock", "pool", lineterm="", n=2)
    return "\n".join(line[:600] for line in lines)


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_is_the_same_with_a_stock_worker_an_ordinary_archive_and_a_hermetic_one(
    servers: Pair, scene: Scene, tmp_path: Path
) -> None:
    def play(server: TorchServe, way: Way) -> Story:
        scratch = tmp_path / f"{server.overlay}-{way.value}"
        scratch.mkdir()
        return scene(server, way, scratch)

    stock, ordinary = servers.both(lambda server: play(server, Way.ORDINARY))
    hermetic = play(servers.pool, Way.HERMETIC)
    _same(stock, ordinary, "an ordinary archive")
    # Clients get what a packed model raises; stock says "Prediction failed".
    _same(_without_errors(stock), _without_errors(hermetic), "a hermetic archive")


def _without_errors(story: Story) -> Story:
    return [
        (answer.status, answer.reason) if isinstance(answer, Exchange) and answer.status >= 500 else answer
        for answer in story
    ]


def _same(stock: Story, pool: Story, what: str) -> None:
    theirs, ours = (
        pprint.pformat(story, width=160)
        .replace("_hermetic", "_NAME")
        .replace("_ordinary", "_NAME")
        .splitlines()
        for story in (stock, pool)
    )
    difference = list(difflib.unified_diff(theirs, ours, "stock", what, lineterm="", n=2))
    assert not difference, "\n".join(line[:400] for line in difference)
