"""All that TorchServe's front end offers works alike before a stock worker and before the pool."""

from __future__ import annotations

import difflib
import pprint
from pathlib import Path

import pytest
from local_server import TorchServe
from system.comparison.exchange import Exchange
from system.comparison.front import Way
from system.comparison.scenes import SCENES, Scene, Story, requests
from system.comparison.servers import Pair


def _parameter(scene: Scene) -> object:
    marks = [] if scene is requests else [pytest.mark.long]
    return pytest.param(scene, id=scene.__name__, marks=marks)


@pytest.mark.parametrize("scene", [_parameter(scene) for scene in SCENES])
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
    # What a packed model raises is told to the client; stock says "Prediction failed".
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
