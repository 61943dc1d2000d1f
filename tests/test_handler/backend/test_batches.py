"""Several requests as one call, in each of the three ways, and what archives say of it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from answers import proven_by, read
from test_handler.backend.doubling import Doubles
from ts.context import Context, RequestProcessor

from interpool.handler.backend.batches import batch_of
from interpool.handler.backend.defaults import DefaultHandler
from interpool.handler.backend.inputs import Arguments
from interpool.handler.backend.parts import CannotSplit, split
from interpool.native.archive.format import SERVED_PLAINLY, Batches

Found = tuple[list[Any], list[int]]
LIKE = [1.0, 2.0]


def served(
    entry: Any, like: Any, *, parts: Any = "rows", inputs: Any = None, **serving: Any
) -> Callable[..., Found]:
    """Answers batches of JSON bodies, or of bytes; the proof was made with a body like this one."""
    said: Any = {**SERVED_PLAINLY, "parts": parts, **serving}
    proven = proven_by(like)
    handler = DefaultHandler(entry, "m", tracebacks=False, serving=said, inputs=inputs, proven=proven)

    def answers(*bodies: Any) -> Found:
        context = Context("m", "/nowhere", {}, 1, None, "0")
        context.request_processor = [RequestProcessor({}) for _ in bodies]
        found = handler.handle([{"body": body} for body in bodies], context)
        codes = [context.get_response_status(index)[0] for index in range(len(bodies))]
        return read(found, context), codes

    return answers


def ask(entry: Any, *bodies: Any, **options: Any) -> Found:
    """The answers to a batch, and their statuses; the proof was made with a body like the first."""
    return served(entry, bodies[0], **options)(*bodies)


def test_a_batch_of_no_rows_is_asked_of_the_model_by_itself() -> None:
    some, none = (Arguments((torch.ones(rows, 2),), {}) for rows in (1, 0))
    assert batch_of([some, none], "batch") is None
    assert batch_of([some, some], "batch") is not None


@pytest.mark.parametrize("body", [[1.0], [[1.0, 2.0]], [1, 2], {"x": LIKE}, {"args": [LIKE, 1]}])
def test_requests_that_are_unlike_the_proven_one_share_no_call(body: Any) -> None:
    """However well they fit together."""
    model = Doubles()
    assert served(model, LIKE, batches="stack")(body, body)[1] == [200, 200]
    assert [shape[0] for shape in model.seen] == [1, 1]
    assert ask(model, body, body, batches="stack")[1] == [200, 200]
    assert model.seen[2:] == [(2, *model.seen[0][1:])]


def test_batches_of_any_sizes_share_a_call_if_the_rest_is_like_the_proven_one() -> None:
    model = Doubles()
    ask_one = served(model, [LIKE], batches="batch")
    ask_one([LIKE] * 2, [LIKE] * 3)
    ask_one([[*LIKE, 3.0]], [[*LIKE, 3.0]])
    assert model.seen == [(5, 2), (1, 3), (1, 3)]


def test_samples_that_lack_a_dimension_are_not_taken_for_the_parts_of_one() -> None:
    """Layers that take one sample, without a batch, too, do so with what was stacked of several."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(2, 1, 4, batch_first=True)
    answers = served(layer, [LIKE] * 3, batches="stack")
    (alone,), _ = answers([1.0, 0.0])
    together, codes = answers([1.0, 0.0], [float("nan"), 1.0])
    assert (together[0], codes) == (alone, [200, 200])


def test_a_models_change_of_an_option_is_undone_before_it_is_called_again() -> None:
    def scale(x: torch.Tensor, options: dict[str, float]) -> torch.Tensor:
        by = options.pop("by", 1.0)
        if x.isnan().any():
            raise ValueError("no number")
        return x * by

    bodies = [{"x": [value], "options": {"by": 2.0}} for value in (1.0, float("nan"), 3.0)]
    answers, codes = ask(scale, *bodies, batches="stack")
    assert (codes, answers[0], answers[2]) == ([200, 503, 200], [2.0], [6.0])


@pytest.mark.parametrize("other", [[[1, 2, 3]], [[1.0, 2.0]], 5.0])
def test_batches_that_do_not_fit_together_run_one_at_a_time(other: Any) -> None:
    model = Doubles()
    found = ask(model, {"x": [[1, 2]]}, {"x": [[1]], "bias": other}, batches="batch")[1]
    assert (found, len(model.seen)) == ([200, 200], 2)


def test_tensors_whose_first_dimensions_differ_are_no_batch() -> None:
    bags = Arguments((torch.arange(5), torch.tensor([0, 2])), {})
    assert batch_of([bags, bags], "batch") is None
    fits = Arguments((torch.ones(2, 3), torch.ones(2)), {})
    both = batch_of([fits, fits], "batch")
    assert both is not None
    assert [tuple(each.shape) for each in both.call.positional] == [(4, 3), (4,)]


def test_an_output_without_a_part_for_each_is_not_divided() -> None:
    call = Arguments((torch.ones(2, 3),), {})
    both = batch_of([call, call], "batch")
    assert both is not None
    with pytest.raises(CannotSplit):
        split(torch.ones(3), "rows", both.sizes)
    found = split({"y": torch.ones(4, 1)}, {"dict": {"y": "rows"}}, both.sizes)
    assert [tuple(part["y"].shape) for part in found] == [(2, 1), (2, 1)]


def test_arrays_with_labels_are_divided_by_place() -> None:
    class Labelled:
        """Finds items by label, as those of pandas do."""

        shape = (3,)

        def __getitem__(self, label: int) -> float:
            return {2: 1.0, 1: 2.0, 0: 3.0}[label]

        def tolist(self) -> list[float]:
            return [1.0, 2.0, 3.0]

    assert split(Labelled(), "rows", 3) == [1.0, 2.0, 3.0]
    assert split(Labelled(), "rows", [1, 2]) == [[1.0], [2.0, 3.0]]


def test_a_callable_can_have_its_requests_stacked() -> None:
    seen = []

    def double(x: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(x.shape))
        return x * 2

    assert ask(double, [1, 2], [3, 4], batches="stack")[0] == [[2, 4], [6, 8]]
    assert seen == [(2, 2)]


@pytest.mark.parametrize("batches", ["stack", "batch"])
def test_requests_with_lists_of_tensors_share_no_call(batches: Batches) -> None:
    call = Arguments((torch.ones(1), [torch.ones(2), torch.ones(3)]), {})
    assert batch_of([call, call._replace(positional=(torch.ones(1), [torch.ones(2)]))], batches) is None


class TestPositionalArguments:
    @staticmethod
    def both(x: Any, y: Any, scale: Any = 1) -> Any:
        return (x + y) * scale

    def test_several_positional_arguments_come_as_args(self) -> None:
        assert ask(self.both, {"args": [[1, 2], [3, 4]]})[0] == [[4, 6]]

    def test_named_arguments_may_accompany_positional_ones(self) -> None:
        body = {"args": [[1, 2], [3, 4]], "kwargs": {"scale": 2}, "dtype": "float64"}
        assert ask(self.both, body)[0] == [[8.0, 12.0]]

    def test_saved_tensors_can_be_args(self) -> None:
        file = io.BytesIO()
        torch.save({"args": (torch.ones(2), torch.ones(2))}, file)
        assert ask(self.both, file.getvalue())[0] == [[2.0, 2.0]]

    def test_inputs_of_a_batch_are_stacked(self) -> None:
        model = Doubles()
        assert ask(model, {"args": [[1], [1]]}, {"args": [[2], [2]]}, batches="stack")[0] == [[3], [6]]
        assert model.seen == [(2, 1)]

    @pytest.mark.parametrize("body", [{"args": 3}, {"args": [], "kwargs": []}])
    def test_args_that_are_no_list_are_refused(self, body: Any) -> None:
        (answer,), codes = ask(self.both, body)
        assert codes == [400]
        assert "`args` must be a list" in answer["message"]

    def test_a_named_argument_makes_args_and_kwargs_names(self) -> None:
        assert ask(lambda args, other: [args.tolist(), other], {"args": [1], "other": 2})[0] == [[[1], 2]]


class TestModes:
    class Steps(torch.nn.Module):
        """Differentiates in its forward."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            (step,) = torch.autograd.grad((self.weight * x).sum(), self.weight)
            return x + step

    def test_the_answer_says_that_a_model_that_differentiates_ran_in_inference_mode(self) -> None:
        (answer,), codes = ask(self.Steps(), [1.0, 2.0])
        assert codes == [503]
        assert "it ran in inference mode" in answer["message"]
        assert "--grad" in answer["message"]

    def test_a_model_that_differentiates_answers_when_gradients_are_on(self) -> None:
        assert ask(self.Steps(), [1.0, 2.0], grad=True) == ([[2.0, 4.0]], [200])

    @pytest.mark.parametrize(("train_mode", "answer"), [(False, [1.0]), (True, [0.0])])
    def test_a_module_can_stay_in_training_mode(self, train_mode: bool, answer: list[float]) -> None:
        assert ask(torch.nn.Dropout(1.0), [1.0], train_mode=train_mode)[0] == [answer]
