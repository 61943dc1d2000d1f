"""Every recipe packs by plan's first proposal, and answers from its archive as from its source."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from model_store.recipes import (
    EXTERN,
    INTERNED,
    SPEC,
    STORE,
    answer_from_archives,
    answer_from_source,
    run_in,
)

from interpool.archiver_ext import PackReport, pack

NAMES = list(INTERNED)
Report = Callable[[str], PackReport]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes")


@pytest.fixture(scope="module")
def packed(folder: Path) -> dict[str, PackReport]:
    subprocess.run(
        [sys.executable, STORE / "detector/build_ops.py"], check=True, stdout=subprocess.DEVNULL, timeout=120
    )

    def one(name: str) -> PackReport:
        return pack(SPEC, folder / f"{name}.ptpkg", root=STORE / name)

    with ThreadPoolExecutor(2) as threads:
        return dict(zip(NAMES, threads.map(one, NAMES), strict=True))


@pytest.fixture(scope="module")
def stock(packed: dict[str, PackReport], folder: Path) -> dict[str, Path]:
    """Where each recipe's answer from its source lies."""
    folders = {name: folder / name for name in packed}
    for each in folders.values():
        each.mkdir()
    answer_from_source(folders)
    return folders


@pytest.mark.parametrize("name", NAMES)
def test_plans_first_proposal_holds(packed: dict[str, PackReport], name: str) -> None:
    report = packed[name]
    assert (report.attempts, report.corrections, report.warnings) == (1, [], [])
    assert {module.partition(".")[0] for module in report.names("intern")} == INTERNED[name]
    assert {each["module"] for each in report.externs} >= EXTERN.get(name, set())
    assert report.inputs is not None, "without example inputs there is no self-test"


def test_two_interpreters_answer_at_once_as_the_sources_do(
    packed: dict[str, PackReport], stock: dict[str, Path]
) -> None:
    archives = {name: report.output for name, report in packed.items()}
    assert answer_from_archives(archives, stock) == {name: [[], []] for name in NAMES}


def test_another_answer_is_told_from_the_right_one(
    packed: dict[str, PackReport], stock: dict[str, Path], tmp_path: Path
) -> None:
    answer = torch.load(stock["dlrm"] / "answer.pt")
    answer["expected"][1] += 1e-4
    torch.save(answer, tmp_path / "answer.pt")
    found = answer_from_archives({"dlrm": packed["dlrm"].output}, {"dlrm": tmp_path})["dlrm"]
    assert [len(each) for each in found] == [1, 1]
    assert "Mismatched elements: 1 / 3" in found[0][0]


def test_the_detectors_operators_travel_with_it(packed: dict[str, PackReport]) -> None:
    plan = packed["detector"].plan
    assert list(plan.data) == ["project/region_ops.so"]


def test_tacotron_draws_random_numbers_when_it_speaks() -> None:
    found = run_in("tacotron", """
import json, torch
from project.factory import build, example_inputs
model, made = build(), []
for seed in (0, 0, 1):
    torch.manual_seed(seed)
    with torch.inference_mode():
        made.append(model(example_inputs()))
one, again, other = (each["mels"][0, :8] for each in made)
print(json.dumps([bool(torch.equal(one, again)), bool(torch.equal(one, other)), made[0]["lengths"].tolist()]))
""")  # fmt: skip
    assert found == [True, False, [17, 60]]


def test_the_translator_generates_the_same_with_and_without_what_it_kept() -> None:
    """Keys and values kept from token to token give what attention over the whole beginning gives."""
    assert run_in("translator", """
import json, torch
from project.attention import Attention
torch.manual_seed(0)
attention, x = Attention(32, 4).eval(), torch.rand(2, 5, 32)
causal = torch.ones(5, 5, dtype=torch.bool).tril()
whole = attention(x, attention.remember(x), causal)
memory, steps = None, []
for at in range(5):
    memory = attention.remember(x[:, at : at + 1], memory)
    steps.append(attention(x[:, at : at + 1], memory))
print(json.dumps(torch.allclose(whole, torch.cat(steps, dim=1), atol=1e-6)))
""")  # fmt: skip


def test_the_taggers_best_tags_are_those_that_no_others_beat() -> None:
    """The field's argmax and log-partition equal those found by trying all sequences of tags."""
    assert run_in("tagger", """
import itertools, json, torch
from project.factory import build
from project.tags import TAGS
model, words = build(), ["Ada", "met", "Bob"]
with torch.no_grad():
    edges = model.potentials([words], torch.tensor([3]))[0]
    scores = {tags: float(edges[0, tags[1], tags[0]] + edges[1, tags[2], tags[1]])
              for tags in itertools.product(range(len(TAGS)), repeat=3)}
    answer = model([words])[0]
best = max(scores, key=scores.get)
total = torch.tensor(list(scores.values())).logsumexp(0)
assert answer["tags"] == [TAGS[tag] for tag in best], (answer, best)
print(json.dumps(abs(float(answer["score"]) - float(scores[best] - total)) < 1e-3))
""")  # fmt: skip


def test_the_detectors_operators_compute_what_their_reference_does(packed: dict[str, PackReport]) -> None:
    found = run_in("detector", """
import json, torch
from project import operators, reference
torch.manual_seed(0)
corners = torch.rand(40, 2) * 60 - 10
boxes = torch.cat([corners, corners + torch.rand(40, 2) * 40], dim=1)
boxes[0, 2:] = boxes[0, :2]  # an empty one
scores = torch.rand(40).round(decimals=1)  # with ties
features = torch.rand(3, 8, 10)
kept = [operators.suppress(boxes, scores, each).tolist() for each in (0.1, 0.5)]
assert kept == [reference.suppress(boxes, scores, each).tolist() for each in (0.1, 0.5)]
assert len(kept[0]) < len(kept[1]) < 40
for side in (1, 3):
    found, expected = (module.align(features, boxes, 0.125, side) for module in (operators, reference))
    torch.testing.assert_close(found, expected)
refused = []
for boxes in (torch.rand(4), torch.rand(2, 4, dtype=torch.float64)):
    try:
        operators.align(features, boxes, 0.125, 1)
    except RuntimeError as error:
        refused.append(str(error).splitlines()[0])
print(json.dumps(refused))
""")  # fmt: skip
    assert found == ["boxes must be (boxes, 4), not [4]", "boxes must be float32, not Double"]
