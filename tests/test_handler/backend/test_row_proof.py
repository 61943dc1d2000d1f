"""Which parts of a batch's answer are proven to be one request's, and which models have no proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from interpool.archiver_ext.verify.self_test import differences, plain
from interpool.handler.backend.inputs import Arguments
from interpool.handler.backend.row_proof import NotProven, prove
from interpool.native.archive.format import Batches


def proof(model: Callable[..., Any], *samples: Any, batches: Batches = "stack", seed: int = 0) -> Any:
    """The parts that are proven for requests that hold these tensors."""

    def ask(call: Arguments) -> Any:
        torch.manual_seed(seed)
        with torch.inference_mode():
            return plain(model(*call.positional, **call.named))

    def alike(one: Any, other: Any) -> list[str]:
        return differences(one, other, 1e-3, 1e-4)

    def equal(one: Any, other: Any) -> list[str]:
        return differences(one, other, 0, 0)

    return prove(ask, [Arguments((sample,), {}) for sample in samples], batches, alike, equal)


def eval_(module: nn.Module) -> nn.Module:
    return module.eval()


X = torch.tensor([0.5, -1.0, 2.0, 0.25])
Y = torch.tensor([1.5, 3.0, 2.0, 0.75])


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        (lambda x: x * 2, "rows"),
        (lambda x: x.sum(-1), "rows"),
        (lambda x: x.softmax(-1), "rows"),
        (lambda x: {"y": x, "none": None, "pair": (x, x.sum(1))}, None),
        (lambda x: [{"score": row.max()} for row in x], "rows"),
        (lambda x: (x, [x * 2, x * 3]), {"list": ["rows", {"list": ["rows", "rows"]}]}),
        (eval_(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout())), "rows"),
        (lambda x: x.numpy(), "rows"),
    ],
)
def test_an_answer_that_is_computed_row_by_row_is_divided(model: Any, parts: Any) -> None:
    expected = parts or {"dict": {"y": "rows", "none": "none", "pair": {"list": ["rows", "rows"]}}}
    assert proof(model, X) == expected
    assert proof(model, X, Y) == expected


def dynamic() -> nn.Module:
    """A layer whose activations get one scale for the whole batch."""

    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = x.abs().amax().clamp_min(1e-9) / 127
            return (x / scale).round().clamp(-128, 127) * scale

    return Scaled()


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x.unique(),
        lambda x: x.view(-1, 2),
        lambda x: x.sum(0),
        lambda x: x.softmax(0),
        lambda x: x - x.mean(0),
        lambda x: x - 1e-6 * x.mean(0),
        lambda x: x / x.max(),
        lambda x: x.sort(0).values,
        lambda x: x.flip(0),
        lambda x: {"y": x, "prior": torch.ones(3)},
        lambda x: {"y": x, "version": 1},
        lambda x: {"y": x, "name": "abc"},
        lambda x: [{"boxes": x[0]}],
        lambda x: {"boxes": x, "found": x.isnan().any()},
        lambda x: torch.zeros_like(x) if x.isnan().any() else x,
        lambda x: x - x.mean(0) if x.abs().max() > 100 else x,
        lambda x: x + torch.rand(x.shape),
        lambda x: {str(len(x)): x},
        nn.BatchNorm1d(4).train(),
        dynamic(),
    ],
)
def test_a_model_that_mixes_requests_has_no_proof(model: Any) -> None:
    for samples in ([X], [X, Y], [X, Y, X + Y]):
        with pytest.raises((NotProven, ValueError)):  # batch normalization takes no batch of one
            proof(model, *samples)


def test_one_element_that_is_kept_or_not_is_no_row() -> None:
    with pytest.raises(NotProven):
        proof(lambda x: x[x > 0], torch.tensor([1.0]))


def test_a_model_that_changes_has_no_proof() -> None:
    calls: list[int] = []
    with pytest.raises(NotProven):
        proof(lambda x: x + (calls.append(1) or len(calls)), X)


def test_whole_batches_of_different_sizes_are_divided() -> None:
    whole = torch.rand(3, 4)
    assert proof(lambda x: x * 2, whole, whole[:1], batches="batch") == "rows"
    with pytest.raises(NotProven):
        proof(lambda x: x - x.mean(0), whole, whole[:1], batches="batch")


def test_batches_of_some_sizes_only_have_no_proof() -> None:
    """Two that the model refuses could make one that it takes."""

    def swap_pairs(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 2, 3).flip(1).view(-1, 3)

    pairs = torch.rand(4, 3)
    with pytest.raises(NotProven, match="every size"):
        proof(swap_pairs, pairs, pairs[:1], batches="batch")


def test_whole_numbers_are_changed_within_what_the_model_takes() -> None:
    table = nn.Embedding(10, 3)
    assert proof(table, torch.tensor([1, 2, 9])) == "rows"
    with pytest.raises(NotProven):
        proof(lambda ids: table(ids) + ids.max(), torch.tensor([1, 2, 9]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.int64])
def test_a_model_that_guesses_from_the_largest_value_of_a_batch_has_no_proof(dtype: torch.dtype) -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x / 255 if x.abs().max() > 1 else x / 1  # are these pixels from 0 to 255?

    with pytest.raises(NotProven):
        proof(scaled, torch.tensor([0, 17, 200, 255], dtype=dtype))


def test_inputs_that_cannot_be_changed_prove_nothing() -> None:
    def only(x: torch.Tensor) -> torch.Tensor:
        assert (x == X).all()
        return x

    with pytest.raises(NotProven, match="several different samples"):
        proof(only, X)
