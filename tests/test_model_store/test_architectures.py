"""The recipes' parts compute what the papers say."""

from __future__ import annotations

from test_model_store.recipes import build_operators, run_in


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


def test_the_detectors_operators_compute_what_their_reference_does() -> None:
    build_operators()
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
