"""Which request of a model's example inputs works, if any, by the code that serves."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from interpool.archiver_ext.verify.self_test import Sample, answer, plain
from interpool.archiver_ext.verify.serving_side import FoundRequest, ServeCheck
from interpool.handler.backend import serve_check
from interpool.handler.backend.serve_check import find_request, repeat_request
from interpool.native.archive.format import SERVED_PLAINLY, EntryKind, SelfTest, Serving

TEST: SelfTest = {"package": "p", "resource": "r", "seed": 0, "rtol": 1e-4, "atol": 1e-5}


def check(
    make: Callable[[], Any], *inputs: Any, kind: EntryKind = "module", batches: Any = None, **named: Any
) -> ServeCheck:
    """What the check finds for inputs that the model was called with; what it finds works again."""
    torch.manual_seed(0)
    serving: Serving = {**SERVED_PLAINLY, "batches": batches}
    held = {"args": inputs, "kwargs": named}
    held["expected"] = answer(make(), kind, Sample(inputs, named), serving=serving)
    checked = find_request(make, kind, held, TEST, serving)
    if checked.found is not None:
        assert again(checked.found, make, held, kind) == []
        wrong = {**held, "expected": plain(_changed(held["expected"]))}
        if not checked.found.notes:
            assert again(checked.found, make, wrong, kind) != []
    return checked


def again(found: FoundRequest, make: Callable[[], Any], held: Any, kind: EntryKind) -> list[str]:
    """What the request in an archive is found to be wrong with."""
    serving: Serving = {**SERVED_PLAINLY, "batches": found.batches}
    request: Any = {"content_type": found.content_type, "part": found.part, "package": "p", "resource": "r"}
    return repeat_request(make, kind, held, TEST, serving, request, found.body)


def _changed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value + 1
    if isinstance(value, dict):
        return {name: _changed(item) for name, item in value.items()}
    return [_changed(item) for item in value] if isinstance(value, list) else f"{value} "


def works(*args: Any, **kwargs: Any) -> FoundRequest:
    """What ``check`` has found."""
    checked = check(*args, **kwargs)
    assert checked.found is not None, checked.refusal
    return checked.found


def seeded(module: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Makes a module that is the same each time."""

    def make() -> nn.Module:
        torch.manual_seed(1)
        return module().eval()

    return make


class Forward(nn.Module):
    """A module of one function."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = forward  # type: ignore[method-assign]


def forward(function: Callable[..., Any]) -> Callable[[], nn.Module]:
    """Makes a module of one function."""
    return lambda: Forward(function)


def test_a_batch_of_one_becomes_a_sample_without_its_dimension() -> None:
    found = works(seeded(lambda: nn.Conv2d(3, 4, 3)), torch.rand(1, 3, 8, 9))
    assert (found.batches, found.part, found.content_type) == ("stack", 0, "application/json")
    assert torch.tensor(json.loads(found.body)).shape == (3, 8, 9)


def test_of_a_batch_each_row_is_a_request() -> None:
    found = works(seeded(lambda: nn.Linear(4, 3)), torch.rand(5, 4))
    assert (found.batches, found.part) == ("stack", 0)
    assert torch.tensor(json.loads(found.body)).shape == (4,)


def test_a_sample_without_a_batch_stays_as_it_is() -> None:
    found = works(seeded(lambda: nn.Linear(4, 3)), torch.rand(4))
    assert (found.batches, found.part) == ("stack", None)
    assert torch.tensor(json.loads(found.body)).shape == (4,)


def test_a_model_that_mixes_the_rows_of_a_batch_gets_whole_batches_one_by_one() -> None:
    found = works(forward(lambda x: x - x.mean(0)), torch.rand(3, 4))
    assert (found.batches, found.part) == ("each", None)


def test_a_mean_over_one_row_does_not_pass_for_a_sample() -> None:
    assert works(forward(lambda x: x - x.mean(0)), torch.rand(1, 4)).batches == "each"


def test_inputs_with_steps_before_rows_are_no_batch() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(3, 4)

        def forward(self, steps: torch.Tensor) -> torch.Tensor:
            return self.cells(steps)[0]  # type: ignore[no-any-return]

    assert works(seeded(Steps), torch.rand(6, 2, 3)).batches == "each"


def test_whole_batches_are_found() -> None:
    strict = forward(lambda x, n: x * 2 if n.shape == x.shape[:1] else 1 / 0)
    assert works(strict, torch.rand(3, 2), torch.ones(3)).batches == "batch"


def test_bags_of_indices_come_by_place_and_by_name() -> None:
    bags = seeded(lambda: nn.EmbeddingBag(10, 4))
    found = works(bags, torch.tensor([1, 2, 4]), torch.tensor([0, 2]))
    assert (found.batches, json.loads(found.body)) == ("each", {"args": [[1, 2, 4], [0, 2]]})
    found = works(bags, input=torch.tensor([1, 2, 4]), offsets=torch.tensor([0, 2]))
    assert json.loads(found.body) == {"input": [1, 2, 4], "offsets": [0, 2]}


def test_lists_of_tensors_are_in_no_batch() -> None:
    pools = forward(lambda x, bags: x + bags[0].sum() if len(x) == 3 else 1 / 0)
    assert works(pools, torch.rand(3, 1), [torch.ones(4), torch.ones(4)]).batches == "each"


def test_requests_that_bring_other_values_than_were_proven_share_no_call() -> None:
    """A list of numbers comes as a tensor, and would be stacked with those of others."""
    found = works(forward(lambda x, sizes: x * sizes[0]), torch.rand(3, 2), [2, 2])
    assert found.batches == "each"
    assert "such as a list of numbers as a tensor" in " ".join(found.notes)


def test_types_that_json_lacks_are_said_or_saved() -> None:
    halves = works(forward(lambda x: x * 2), torch.rand(2, 3, dtype=torch.float64))
    assert json.loads(halves.body)["dtype"] == "float64"
    strict = forward(lambda x, y: x * 2 if (x.dtype, y.dtype) == (torch.int32, torch.float64) else 1 / 0)
    found = works(strict, torch.ones(2, 3, dtype=torch.int32), torch.ones(2, 3, dtype=torch.float64))
    assert found.content_type == "application/octet-stream"


def test_a_list_of_images_of_different_sizes_is_saved() -> None:
    found = works(
        forward(lambda images: [{"sum": image.sum()} for image in images]),
        [torch.rand(3, 4, 5), torch.rand(3, 2, 2)],
    )
    assert (found.batches, found.content_type) == ("each", "application/octet-stream")


def test_texts_are_sent_as_texts() -> None:
    def shout(text: str) -> str:
        return text.upper()

    found = works(lambda: shout, "a text", kind="callable")
    assert (found.batches, found.body, found.content_type) == ("each", b"a text", "text/plain; charset=utf-8")


def test_a_random_model_must_only_repeat_its_answer_with_its_seed() -> None:
    found = works(forward(lambda x: x + torch.rand(x.shape)), torch.rand(3, 4))
    random, alone = found.notes
    assert "random" in random
    assert "requests are answered by a call each" in alone


def test_a_model_that_counts_its_calls_must_only_repeat_its_first_answer() -> None:
    class Counts(nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x + self.calls

    assert "earlier calls" in works(Counts, torch.rand(1, 4)).notes[0]


@pytest.mark.long
def test_a_request_that_torchserve_would_refuse_is_said() -> None:
    (said,) = works(forward(lambda x: x.sum(-1)), torch.rand(1, 2_000_000)).notes
    assert "max_request_size" in said


def test_an_answer_that_torchserve_would_refuse_is_said_with_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serve_check, "MOST_RESPONSE_BYTES", 20)
    found = works(forward(lambda x: x + 1), torch.rand(1, 8))
    assert found.answer_bytes > 20
    (said,) = found.notes
    assert said.startswith(f"the answer to its example inputs has {found.answer_bytes:,} bytes")
    assert "max_response_size" in said


def test_an_object_in_the_answer_is_named_with_what_to_do() -> None:
    class Cache:
        """No answer can hold one."""

    checked = check(forward(lambda x: {"logits": x, "cache": [1, Cache()]}), torch.rand(1, 2))
    assert "answer['cache'][1] is a " in checked.refusal
    assert "Cache, which no answer over HTTP can hold" in checked.refusal
    assert "use_cache=False" in checked.refusal


def test_an_argument_that_no_request_brings_is_named() -> None:
    class Graph:
        """No request brings one."""

    def count(graph: Graph) -> int:
        return 1

    checked = check(lambda: count, Graph(), kind="callable")
    assert "argument 1 holds what no request can bring" in checked.refusal
    assert "--no-serve-check" in checked.refusal


def test_a_way_that_was_asked_for_is_the_only_one() -> None:
    assert works(seeded(lambda: nn.Linear(4, 3)), torch.rand(2, 4), batches="batch").batches == "batch"
    checked = check(forward(lambda x: x - x.mean(0)), torch.rand(3, 4), batches="stack")
    assert (
        "as samples that are stacked: in a batch of two, a request is answered otherwise" in checked.refusal
    )
    assert "whole batches" not in checked.refusal


class Lengths:
    """A handler."""

    def handle(self, data: list[dict[str, Any]], _context: Any) -> list[Any]:
        return [{"length": len(row["body"]), "type": type(row["body"]).__name__ != "str"} for row in data]


def test_a_handlers_first_row_is_its_request() -> None:
    found = works(Lengths, [{"body": b"abc"}, {"body": "de"}], kind="handler")
    assert (found.batches, found.part, found.body) == (None, 0, b"abc")


def test_a_handler_that_answers_tensors_in_dicts_is_refused() -> None:
    class Tensors(Lengths):
        def handle(self, data: list[dict[str, Any]], _context: Any) -> list[Any]:
            return [{"x": torch.ones(1)} for _ in data]

    checked = check(Tensors, [{"body": "x"}], kind="handler")
    assert "must make lists of" in checked.refusal


def test_a_handler_that_forgets_a_row_is_refused() -> None:
    class One(Lengths):
        def handle(self, data: list[dict[str, Any]], _context: Any) -> list[Any]:
            return ["one"]

    checked = check(One, [{"body": "x"}, {"body": "y"}], kind="handler")
    assert "no list of 2 answers" in checked.refusal


def test_the_models_exception_is_named_for_each_way() -> None:
    def is_called_directly() -> bool:
        return any(frame.f_code is answer.__code__ for frame, _ in traceback.walk_stack(None))

    checked = check(forward(lambda x: x if is_called_directly() else 1 / 0), torch.rand(1, 2))
    assert checked.refusal.count("ZeroDivisionError") == 1
    assert "as whole batches, as JSON" in checked.refusal


@pytest.mark.parametrize("kind", ["module", "callable"])
def test_mappings_and_named_tuples_are_divided(kind: EntryKind) -> None:
    model = forward(lambda x: {"double": x * 2, "parts": (x, x.sum(-1))})
    found = works(model, torch.rand(2, 3), kind=kind)
    assert found.batches == ("stack" if kind == "module" else "each")


@pytest.mark.parametrize("part", [99, 10**40])
def test_a_request_for_a_part_that_the_answer_lacks_is_said(part: int) -> None:
    request: Any = {"content_type": "application/json", "part": part, "package": "p", "resource": "r"}
    held = {"args": (torch.ones(1, 2),), "kwargs": {}, "expected": torch.ones(1, 2)}
    said = repeat_request(nn.ReLU, "module", held, TEST, SERVED_PLAINLY, request, b"[1.0, 1.0]")
    assert said == [f"the self-test's answer has no part {part}, which the request should get"]
