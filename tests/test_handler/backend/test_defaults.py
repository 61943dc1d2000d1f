"""How modules and callables without handler code are served."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from ts.context import Context, RequestProcessor

from interpool.handler.backend.defaults import DefaultHandler
from interpool.handler.backend.outputs import CannotSplit, sendable, split


class Doubles(torch.nn.Module):
    """Doubles its input; keeps the shapes it saw."""

    def __init__(self, output: Any = lambda y: y) -> None:
        super().__init__()
        self.seen: list[tuple[int, ...]] = []
        self.output = output

    def forward(self, x: Any, bias: Any = 0) -> Any:
        if isinstance(x, torch.Tensor):
            self.seen.append(tuple(x.shape))
            if x.sum() > 1000:
                raise ValueError("too much")
        return self.output(x * 2 + bias)


def _context(size: int) -> Any:
    context = Context("m", "/nowhere", {}, 1, None, "0")
    context.request_processor = [RequestProcessor({}) for _ in range(size)]
    return context


def _ask(entry: Any, *bodies: object, tracebacks: bool = False) -> tuple[list[Any], list[int]]:
    context = _context(len(bodies))
    handler = DefaultHandler(entry, "m", tracebacks=tracebacks)
    answers = handler.handle([{"body": body} for body in bodies], context)
    return answers, [context.get_response_status(index)[0] for index in range(len(bodies))]


def test_equal_shapes_run_as_one_batch() -> None:
    model = Doubles()
    assert _ask(model, [1, 2], [3, 4]) == ([[2, 4], [6, 8]], [200, 200])
    assert model.seen == [(2, 2)]


def test_a_single_request_is_a_batch_of_one() -> None:
    model = Doubles()
    assert _ask(model, [1, 2]) == ([[2, 4]], [200])
    assert model.seen == [(1, 2)]


@pytest.mark.parametrize("other", [[1, 2, 3], [1.0, 2.0]])
def test_other_shapes_or_types_run_one_at_a_time(other: list[float]) -> None:
    model = Doubles()
    answers, _ = _ask(model, [1, 2], other)
    assert answers == [[2, 4], [2 * value for value in other]]
    assert model.seen == [(1, 2), (1, len(other))]


def test_options_that_are_no_tensors_must_agree_to_be_one_batch() -> None:
    model = Doubles()
    answers, _ = _ask(model, {"x": [1], "bias": 5}, {"x": [2], "bias": 5})
    assert (answers, model.seen) == ([[7], [9]], [(2, 1)])
    model = Doubles()
    answers, _ = _ask(model, {"x": [1], "bias": 5}, {"x": [2], "bias": 6})
    assert (answers, model.seen) == ([[7], [10]], [(1, 1), (1, 1)])


def test_a_bad_input_and_a_failing_one_leave_the_others_their_answers() -> None:
    answers, codes = _ask(Doubles(), [1, 2], [[1], [2, 3]], [999, 999], [3, 4])
    assert codes == [200, 400, 503, 200]
    assert (answers[0], answers[3]) == ([2, 4], [6, 8])
    assert "not a rectangular array" in answers[1]["message"]
    assert "Model 'm' raised ValueError: too much" in answers[2]["message"]
    assert "Traceback" not in answers[2]["message"]


def test_a_traceback_is_sent_if_asked_for() -> None:
    answers, _ = _ask(Doubles(), [9999], tracebacks=True)
    assert "Traceback (most recent call last)" in answers[0]["message"]


def test_lack_of_memory_is_left_to_torchserve() -> None:
    def greedy(_x: object) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        _ask(greedy, [1])


def test_an_output_without_a_part_per_request_makes_requests_run_alone() -> None:
    model = Doubles(lambda y: y.sum())
    assert _ask(model, [1, 2], [3, 4])[0] == [6, 14]
    assert model.seen == [(2, 2), (1, 2), (1, 2)]


def test_a_module_runs_in_inference_and_evaluation_mode() -> None:
    modes = []
    model = Doubles(lambda y: modes.append(torch.is_inference_mode_enabled()) or y).train()
    _ask(model, [1])
    assert modes == [True]
    assert not model.training


def test_bytes_are_refused_for_a_module_and_passed_to_a_callable() -> None:
    assert _ask(Doubles(), bytearray(b"\x01"))[1] == [400]
    assert _ask(len, bytearray(b"\x01\x02")) == ([2], [200])


def test_a_module_that_takes_text_gets_it() -> None:
    class Length(torch.nn.Module):
        def forward(self, text: str) -> torch.Tensor:
            return torch.tensor([len(text)])

    assert _ask(Length(), "ab", "c") == ([[2], [1]], [200, 200])


def test_a_callable_is_called_once_per_request() -> None:
    calls: list[object] = []
    answers, _ = _ask(lambda x: calls.append(x) or x.tolist(), [1], [2])
    assert answers == [[1], [2]]
    assert len(calls) == 2


def test_the_content_type_says_what_the_answer_is() -> None:
    context = _context(3)
    handler = DefaultHandler(lambda x: x, "m", tracebacks=False)
    handler.handle([{"body": [1]}, {"body": "text"}, {"body": bytearray(b"\x00")}], context)
    types = [context.get_response_content_type(index) for index in range(3)]
    assert types == ["application/json", "text/plain; charset=utf-8", "application/octet-stream"]


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("output", "parts"),
    [
        (torch.tensor([[1], [2]]), [[1], [2]]),
        ((torch.tensor([1, 2]), torch.tensor([3, 4])), [[1, 3], [2, 4]]),
        (Pair(torch.tensor([1, 2]), torch.tensor([3, 4])), [[1, 3], [2, 4]]),
        ({"a": torch.tensor([1, 2])}, [{"a": 1}, {"a": 2}]),
        ({"a": {"b": [torch.tensor([1, 2])]}}, [{"a": {"b": [1]}}, {"a": {"b": [2]}}]),
    ],
)
def test_a_batch_is_split_along_the_first_dimension(output: object, parts: list[Any]) -> None:
    assert [sendable(part) for part in split(output, 2)] == parts


@pytest.mark.parametrize("output", [torch.tensor(1), torch.ones(3), "ab", [], None, {"a": "bc"}])
def test_what_has_no_part_per_request_is_not_split(output: object) -> None:
    with pytest.raises(CannotSplit):
        split(output, 2)


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (torch.ones(2, requires_grad=True), [1.0, 1.0]),
        (np.float32(1.5), 1.5),
        (np.arange(2), [0, 1]),
        ({1: (None, True)}, {"1": [None, True]}),
        (bytearray(b"x"), b"x"),
        ("text", "text"),
    ],
)
def test_answers_become_what_json_has(value: object, sent: object) -> None:
    assert sendable(value) == sent


def test_what_json_lacks_is_named() -> None:
    with pytest.raises(TypeError, match=r"builtins.object, which cannot be sent as JSON"):
        sendable([object()])
