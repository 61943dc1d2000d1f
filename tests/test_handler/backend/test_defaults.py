"""How modules and callables without handler code are served."""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from answers import proven_by, read
from test_handler.backend.doubling import Doubles
from ts.context import Context, RequestProcessor

from interpool.handler.backend.defaults import DefaultHandler
from interpool.handler.backend.outputs import sendable
from interpool.handler.backend.parts import CannotSplit, split
from interpool.native.archive.format import SERVED_PLAINLY


def _context(size: int) -> Any:
    context = Context("m", "/nowhere", {}, 1, None, "0")
    context.request_processor = [RequestProcessor({}) for _ in range(size)]
    return context


STACKED: Any = {**SERVED_PLAINLY, "batches": "stack", "parts": "rows"}


def _ask(entry: Any, *bodies: object, serving: Any = STACKED, **options: Any) -> tuple[list[Any], list[int]]:
    """The answers as clients read them, and their statuses.

    Of a module it is proven that rows are apart, in requests like the first.
    """
    context = _context(len(bodies))
    if not isinstance(entry, torch.nn.Module):
        serving = SERVED_PLAINLY
    given = {"tracebacks": False, "proven": proven_by(bodies[0]), **options}
    handler = DefaultHandler(entry, "m", serving=serving, **given)
    answers = handler.handle([{"body": body} for body in bodies], context)
    return read(answers, context), [context.get_response_status(index)[0] for index in range(len(bodies))]


def test_a_bad_input_and_a_failing_one_leave_the_others_their_answers() -> None:
    answers, codes = _ask(Doubles(), [1, 2], [[1], [2, 3]], [999, 999], [3, 4])
    assert codes == [200, 400, 503, 200]
    assert (answers[0], answers[3]) == ([2, 4], [6, 8])
    assert "not a rectangular array" in answers[1]["message"]
    assert "Model 'm' raised ValueError: too much" in answers[2]["message"]
    assert "Traceback" not in answers[2]["message"]


def test_an_exception_without_a_text_is_its_requests_alone() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise AttributeError("text")

    def fails(text: str) -> str:
        if text == "bad":
            raise Odd
        return text

    answers, codes = _ask(fails, "good", "bad")
    assert (codes, answers[0]) == ([200, 503], "good")
    assert "raised Odd" in answers[1]["message"]


def test_a_default_that_cannot_be_shown_is_no_other_requests_fault() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise AttributeError("text")

    def model(x: str, odd: Any = Odd()) -> str:  # noqa: B008
        return x

    answers, codes = _ask(model, "good", {"y": 1})
    assert (codes, answers[0]) == ([200, 400], "good")
    assert "the model takes (x, odd)" in answers[1]["message"]


class TestDescriptions:
    """The header that asks for one can come with any request of a batch."""

    @staticmethod
    def asked(described: Any, *wishes: bool) -> tuple[list[Any], list[int]]:
        context = _context(len(wishes))
        for index, wish in enumerate(wishes):
            if wish:
                context.request_processor[index]._request_header["describe"] = "True"
        handler = DefaultHandler(Doubles(), "m", tracebacks=False, described=described)
        answers = handler.handle([{} if wish else {"body": [1]} for wish in wishes], context)
        return read(answers, context), [context.get_response_status(i)[0] for i in range(len(wishes))]

    @pytest.mark.parametrize("wishes", [(True, False), (False, True), (True, True, False)])
    def test_are_for_those_that_ask(self, wishes: tuple[bool, ...]) -> None:
        answers, _ = self.asked(lambda: {"a": 1}, *wishes)
        assert answers == [{"a": 1} if wish else [2] for wish in wishes]

    def test_requests_that_fail_fail_alone(self) -> None:
        answers, codes = self.asked({}.popitem, True, False)
        assert (codes, answers[1]) == ([503, 200], [2])


def test_a_traceback_is_sent_if_asked_for() -> None:
    answers, _ = _ask(Doubles(), [9999], tracebacks=True)
    assert "Traceback (most recent call last)" in answers[0]["message"]


def test_lack_of_memory_is_the_request_s_that_lacked_it() -> None:
    def greedy(x: torch.Tensor) -> list[int]:
        if x.sum() > 3:
            raise MemoryError
        return [1]

    assert _ask(greedy, [1], [4])[1] == [200, 507]
    assert _ask(greedy, [4], [1])[1] == [507, 200]


def test_an_answer_that_is_not_as_proven_is_computed_for_each_alone() -> None:
    model = Doubles(lambda y: y.view(-1, 4))
    assert _ask(model, [1, 1], [2, 2], [1, 2, 3, 4])[1] == [503, 503, 200]
    for bodies in ([[1, 2, 3, 4]], [[1, 2, 3, 4], [1] * 8], [[1] * 8, [1, 2, 3, 4]], [[1, 2, 3, 4]] * 2):
        answers = _ask(model, *bodies)[0]
        assert answers[bodies.index([1, 2, 3, 4])] == [2, 4, 6, 8]
        assert all(
            answer == [[2] * 4] * 2 for body, answer in zip(bodies, answers, strict=True) if len(body) > 4
        )


def test_without_a_proof_every_request_is_a_call_as_it_is() -> None:
    model = Doubles(lambda y: y.sum())
    assert _ask(model, [1, 2], [3, 4], serving={**STACKED, "parts": None})[0] == [6, 14]
    assert model.seen == [(2,), (2,)]


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


def test_answers_larger_than_torchserve_takes_fail_alone() -> None:
    answers, codes = _ask(lambda n: "x" * n, 10, 101, 100, most_bytes=100)
    assert codes == [200, 503, 200]
    assert "the answer has 101 bytes, and TorchServe takes 100" in answers[1]["message"]


@pytest.mark.parametrize("answer", ["\ud800", 10**5000, [10**5000]], ids=["text", "number", "list"])
def test_answers_that_have_no_bytes_fail_alone(answer: Any) -> None:
    answers, codes = _ask(lambda x: answer if x == "bad" else x, "bad", "good")
    assert (codes, answers[1]) == ([503, 200], "good")
    assert "cannot be sent" in answers[0]["message"]


@pytest.mark.parametrize("depth", [340, 5000])
def test_lists_nested_without_end_are_their_senders_fault(depth: int) -> None:
    nested: Any = [1]
    for _ in range(depth):
        nested = [nested]
    answers, codes = _ask(Doubles(), [1, 2], nested, [3, 4])
    assert (codes, answers[0], answers[2]) == ([200, 400, 200], [2, 4], [6, 8])


def test_text_from_outside_begins_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fails(text: str) -> None:
        raise ValueError(f"unknown: {text}")

    answers, _ = _ask(fails, "a\n[METRICS]forged\r\ninterpool: forged\u2028[METRICS]")
    for text in (caplog.text, answers[0]["message"]):
        assert "forged" in text
        assert not any(line.startswith(("[METRICS]", "interpool")) for line in text.splitlines())


class TestWhatAClientDidWrong:
    INPUTS: ClassVar[Any] = {"args": [{"tensor": {"dtype": "float32", "shape": [2, 4]}}], "kwargs": {}}

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ([1, 2, 3, 4], "send 1.0 in place of 1"),
            ([1.0, 2.0], "has the shape [2]"),
            ({"features": [1.0, 2.0, 3.0, 4.0]}, "the model takes (input"),
            ("text", "is a str, and the model was packed with a tensor"),
        ],
    )
    def test_is_said_with_what_to_send(self, body: Any, said: str) -> None:
        answers, codes = _ask(torch.nn.Linear(4, 2), body, [1.0] * 4, inputs=self.INPUTS)
        assert codes == [400, 200]
        assert said in answers[0]["message"]

    def test_a_request_that_the_model_takes_is_answered_though_it_is_unlike_the_example(self) -> None:
        assert _ask(Doubles(), [1, 2], inputs=self.INPUTS) == ([[2, 4]], [200])

    def test_an_error_of_a_request_like_the_example_is_the_model_s_fault(self) -> None:
        assert _ask(Doubles(), [999.0] * 4, inputs=self.INPUTS)[1] == [503]


def test_the_content_type_says_what_the_answer_is() -> None:
    context = _context(3)
    handler = DefaultHandler(lambda x: x, "m", tracebacks=False)
    handler.handle([{"body": [1]}, {"body": "text"}, {"body": bytearray(b"\x00")}], context)
    types = [context.get_response_content_type(index) for index in range(3)]
    assert types == ["application/json", "text/plain; charset=utf-8", "application/octet-stream"]


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("output", "proven", "parts"),
    [
        (torch.tensor([[1], [2]]), "rows", [[1], [2]]),
        (np.array([1, 2]), "rows", [1, 2]),
        ([{"box": 1}, {"box": 2}], "rows", [{"box": 1}, {"box": 2}]),
        ((torch.tensor([1, 2]), torch.tensor([3, 4])), {"list": ["rows", "rows"]}, [[1, 3], [2, 4]]),
        (Pair(torch.tensor([1, 2]), None), {"list": ["rows", "none"]}, [[1, None], [2, None]]),
        ({"a": torch.tensor([1, 2])}, {"dict": {"a": "rows"}}, [{"a": 1}, {"a": 2}]),
        ({"a": {}}, {"dict": {"a": {"dict": {}}}}, [{"a": {}}, {"a": {}}]),
    ],
)
def test_a_batch_is_divided_as_proven(output: object, proven: Any, parts: list[Any]) -> None:
    assert [sendable(part) for part in split(output, proven, 2)] == parts


@pytest.mark.parametrize("output", [torch.tensor(1), torch.ones(3), "ab", [], None, {"a": [1, 2]}, {1, 2}])
@pytest.mark.parametrize("proven", ["rows", {"dict": {"b": "rows"}}, {"list": ["rows"]}])
def test_an_answer_that_is_not_as_proven_is_not_divided(output: object, proven: Any) -> None:
    with pytest.raises(CannotSplit):
        split(output, proven, 2)


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
