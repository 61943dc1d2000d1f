"""The recipes' parts compute what the papers say."""

from __future__ import annotations

import pytest
from test_model_store.recipes import build_operators, run_in

# They show that recipes are right, and change with these alone. Their archives are asked in test_recipes.py.
pytestmark = pytest.mark.long


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


def test_what_moves_evenly_is_where_the_interpolator_looks_for_it() -> None:
    """The flows of a frame between two, and images moved by whole pixels."""
    assert run_in("slomo", """
import json, torch
from project.model import approximate
from project.warping import backwarp
motion = torch.tensor([3.0, 1.0])[None, :, None, None].expand(1, 2, 8, 10)
to_first, to_second = approximate(0.25, motion, -motion)
image = torch.rand(1, 3, 8, 10)
moved = backwarp(image, motion)
torch.testing.assert_close(moved[..., :7, :7], image[..., 1:, 3:])
print(json.dumps([to_first[0, :, 0, 0].tolist(), to_second[0, :, 0, 0].tolist()]))
""") == [[-0.75, -0.25], [2.25, 0.75]]  # fmt: skip


def test_stargan_makes_of_one_face_what_it_is_told() -> None:
    found = run_in("stargan", """
import json, torch
from project.factory import build
model, face = build(), torch.rand(1, 3, 32, 32).expand(3, -1, -1, -1)
with torch.inference_mode():
    one, same, other = model(face, [{"male": True}, {"male": True, "young": False}, {"young": True}])
refused = []
for wanted in ({"bald": True}, {"black hair": True, "blond hair": True}):
    try:
        model(face[:1], [wanted])
    except ValueError as error:
        refused.append(str(error).partition(":")[0])
print(json.dumps([torch.equal(one, same), torch.equal(one, other), refused]))
""")  # fmt: skip
    assert found == [True, False, ["no attributes", "more than one colour of hair"]]


def test_cyclegans_way_back_is_the_other_direction() -> None:
    assert run_in("cyclegan", """
import json, torch
from project.factory import build
model, images = build(), torch.rand(1, 3, 32, 32)
with torch.inference_mode():
    there = model(images, "to zebras")
    back = model(there["fake"], "to horses")
print(json.dumps([torch.equal(there["reconstructed"], back["fake"]), torch.equal(images, there["fake"])]))
""") == [True, False]  # fmt: skip


def test_demucs_gives_back_every_sample_of_any_length() -> None:
    assert run_in("demucs", """
import json, torch
from project.factory import build
model = build()
assert list(model.made_with[0][0]) == model.sources
lengths = [1, 7, 1000, 1001, 1002, 1003, 4099]
with torch.inference_mode():
    answers = model([torch.rand(2, length) for length in lengths])
left = []
for length in map(model.valid_length, lengths):
    for _ in model.encoders:
        left.append((length - model.kernel) % model.stride)
        length = (length - model.kernel) // model.stride + 1
print(json.dumps([[answer["bass"].shape[1] for answer in answers] == lengths, sum(left)]))
""") == [True, 0]  # fmt: skip


def test_yolo_has_the_papers_layers_and_predictions() -> None:
    """52 convolutions of Darknet-53 (its last layer is for classifying), 23 of the heads; boxes at 416."""
    found = run_in("yolo", """
import json, torch
from project.factory import build
from project.model import letterboxed, suppressed
model = build()
convolutions = sum(isinstance(layer, torch.nn.Conv2d) for layer in model.modules())
with torch.inference_mode():
    boxes = model.network(torch.rand(1, 3, 416, 416)).shape[1]
square = letterboxed(torch.ones(3, 20, 40), 64)
kept = suppressed(
    torch.tensor([[0, 0, 10, 10], [1, 0, 11, 10], [1, 0, 11, 10], [20, 0, 30, 10]]).float(),
    torch.tensor([0, 0, 1, 0]), 0.5)
print(json.dumps([convolutions, boxes, float(square.sum()) / 3, kept]))
""")  # fmt: skip
    assert found == [75, 10647, 64 * 32 + 64 * 32 / 2, [0, 2, 3]]


def test_the_painters_later_strokes_cover_earlier_ones() -> None:
    assert run_in("painter", """
import json, torch
from project.factory import build
from project.strokes import BUNDLE, SHAPE, STROKE
model = build()
canvas, bundle = torch.rand(2, 3, 64, 64), torch.rand(2, BUNDLE, STROKE)
painted = {}
for opacity in (0.0, 1.0):
    model.renderer.forward = lambda strokes: torch.full((len(strokes), 64, 64), opacity)
    painted[opacity] = model.paint(canvas, bundle)
last = bundle[:, -1, SHAPE:, None, None].expand_as(canvas)
print(json.dumps([torch.equal(painted[0.0], canvas), torch.equal(painted[1.0], last)]))
""") == [True, True]  # fmt: skip


def test_matting_shows_the_photograph_where_it_is_opaque_and_the_new_background_where_it_is_not() -> None:
    assert run_in("matting", """
import json, torch
from project.factory import build, example_inputs
model, inputs = build(), example_inputs()
equal = []
for opaque, shown in ((1.0, "image"), (0.0, "instead")):
    alpha, colours = torch.full((1, 1, 60, 92), opaque), torch.rand(1, 3, 60, 92)
    model.network.forward = lambda image, priors: (alpha, colours)
    equal.append(torch.equal(model(**inputs)["composed"], inputs[shown]))
print(json.dumps(equal))
""") == [True, True]  # fmt: skip


def test_mocos_newest_keys_replace_the_oldest() -> None:
    found = run_in("moco", """
import json, torch
from project.encoder import Encoder
from project.model import MoCo
torch.manual_seed(0)
model = MoCo(Encoder, width=4, features=8, queue=4).eval()
images = torch.rand(3, 3, 32, 32)
with torch.inference_mode():
    before = model.queue.clone()
    own = model(images, images)[:, 0] * model.temperature
    after = model.queue.clone()
    again = model(images, images)[:, 1:4].diagonal() * model.temperature
    changed = [(before != after).any(dim=0).tolist(), (after != model.queue).any(dim=0).tolist()]
alike = [each.round(decimals=3).tolist() for each in (own, again)]
print(json.dumps([*alike, *changed, int(model.place)]))
""")  # fmt: skip
    assert found == [[1, 1, 1], [1, 1, 1], [True] * 3 + [False], [True, True, False, True], 2]
