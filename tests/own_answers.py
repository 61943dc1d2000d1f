"""Requests, and what each is answered alone: by the model itself, called in this process.

Nothing here is the product's code: what a body means and how an answer is written is said a second time.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import own_answer_models as models
import safetensors.torch
import torch
from hypothesis import strategies as st
from tensor_bytes import npy, saved

JSON, BYTES, TEXT = "application/json", "application/octet-stream", "text/plain"
NPY, SAFETENSORS = "application/x-npy", "application/x-safetensors"
Fields = Mapping[str, tuple[str, bytes]]


@dataclass(frozen=True)
class Kind:
    """A model, and what it is asked.

    Attributes:
        name: of ``own_answer_models``.
        inputs: its example inputs there.
        way: how requests become calls, as it is found without a setting.
        shapes: of requests, the example's first.
        rtol: of its numbers, where a batch of another size is added up in another order.
        row_lists: whether a list in its answer has an item for each row.
        options: further arguments, one of which each batch has mostly.
        train_mode: whether it stays in training mode.
    """

    name: str
    inputs: str
    way: str
    shapes: tuple[tuple[int, ...], ...] = ((4,), (3,), (1,), (0,), (), (2, 4))
    rtol: float = 0.0
    row_lists: bool = False
    options: tuple[dict[str, Any], ...] = ({},)
    train_mode: bool = False

    @property
    def model(self) -> Any:
        return getattr(models, self.name)


@dataclass(frozen=True)
class Asked:
    """A request: its fields with their content types, and the call that it means; None if it means none."""

    fields: Fields = field(repr=False)
    call: tuple[tuple[Any, ...], dict[str, Any]] | None = field(default=None)


@dataclass(frozen=True)
class Answered:
    """What a client reads: a status, and if that is 200, the answer's content type and value."""

    status: int
    content_type: str = ""
    value: Any = None


# ---- the oracle ----------------------------------------------------------------------------------


def alone(kind: Kind, way: str, asked: Asked) -> Answered:
    """The answer of a request that shares its call with no other; the status 503 stands for any error."""
    if asked.call is None:
        return Answered(400)
    args, kwargs = copy.deepcopy(asked.call)
    values = [*args, *kwargs.values()]
    module = isinstance(kind.model, torch.nn.Module)
    if module and any(isinstance(value, bytes) for value in values):
        return Answered(400)
    stacked = way == "stack" and any(isinstance(value, torch.Tensor) for value in values)
    if stacked:
        args = tuple(map(_one_more, args))
        kwargs = {name: _one_more(value) for name, value in kwargs.items()}
    try:
        with torch.inference_mode(module):
            answer = kind.model(*args, **kwargs)
        return _sent(_row(answer, kind) if stacked else answer)
    except Exception:  # noqa: BLE001 -- whatever the model raises
        return Answered(503)


def _one_more(value: Any) -> Any:
    return value[None] if isinstance(value, torch.Tensor) else value


def _row(answer: Any, kind: Kind) -> Any:
    """The one row of an answer to a batch of one; the answer if it has not one row."""
    try:
        return _first(answer, kind)
    except ValueError:
        return answer


def _first(answer: Any, kind: Kind) -> Any:
    if answer is None:
        return None
    if isinstance(answer, dict):
        return {name: _first(value, kind) for name, value in answer.items()}
    if isinstance(answer, (list, tuple)) and not kind.row_lists:
        return [_first(value, kind) for value in answer]
    if getattr(answer, "shape", None) == () or len(answer) != 1:
        raise ValueError
    return answer[0]


def _sent(answer: Any) -> Answered:
    if isinstance(answer, str):
        return Answered(200, "text/plain; charset=utf-8", answer.encode().decode())
    if isinstance(answer, (bytes, bytearray)):
        return Answered(200, BYTES, bytes(answer))
    return Answered(200, JSON, json.loads(json.dumps(_written(answer))))


def _written(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise TypeError
        return value.tolist()
    if isinstance(value, dict):
        return {str(name): _written(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_written(item) for item in value]
    return value


def read(status: int, content_type: str, body: bytes) -> Answered:
    """An answer as its client reads it."""
    if status != 200:
        return Answered(status)
    if content_type == JSON:
        return Answered(status, content_type, json.loads(body))
    return Answered(status, content_type, body.decode() if content_type.startswith(TEXT) else body)


def same(expected: Answered, got: Answered, rtol: float = 0.0) -> bool:
    """Whether an answer is what it should be, every bit of it unless there is a tolerance."""
    if expected.status != 200:
        return got.status == 400 or (expected.status != 400 and got.status in (503, 507))
    if (got.status, got.content_type) != (200, expected.content_type):
        return False
    return _equal(expected.value, got.value, rtol)


def _equal(one: Any, other: Any, rtol: float) -> bool:
    if isinstance(one, list):
        return (
            isinstance(other, list)
            and len(one) == len(other)
            and all(_equal(a, b, rtol) for a, b in zip(one, other, strict=True))
        )
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and list(one) == list(other)
            and all(_equal(one[name], other[name], rtol) for name in one)
        )
    if rtol and isinstance(one, float) and isinstance(other, float) and abs(one) < 1e30:
        return abs(one - other) <= rtol * (1 + abs(one))
    return type(one) is type(other) and repr(one) == repr(other)  # NaN is itself, -0.0 is not 0.0


# ---- requests ------------------------------------------------------------------------------------

_SPECIAL = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 101.0, 1e30, 1.0)


_TYPES = (*[torch.float32] * 6, torch.int64, torch.bool, torch.float64, torch.float16, torch.uint8)


@st.composite
def _tensors(draw: st.DrawFn, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 10_000))))
    if not dtype.is_floating_point:
        return (made.abs() * 3).to(dtype)
    if made.numel() and draw(st.booleans()):
        made.view(-1)[draw(st.integers(0, made.numel() - 1))] = draw(st.sampled_from(_SPECIAL))
    return made.to(dtype)


def _in_json(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _json_has(value: Any) -> bool:
    """Whether JSON without a type beside it means this value."""
    if not isinstance(value, torch.Tensor):
        return True
    natural = value.dtype in (torch.float32, torch.int64, torch.bool)
    empty = value.dtype == torch.float32 and value.shape == (0,)
    return natural and value.dim() > 0 and (value.numel() > 0 or empty)


def _forms(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Fields]:
    """The requests that mean a call."""
    values = [*args, *kwargs.values()]
    bodies = [(BYTES, saved(kwargs or args[0]))]
    if all(map(_json_has, values)):
        said = {name: _in_json(each) for name, each in kwargs.items()} if kwargs else _in_json(args[0])
        call = {"kwargs": said} if kwargs else {"args": [said]}
        bodies += [(JSON, json.dumps(said).encode())] * 3 + [(JSON, json.dumps(call).encode())]
    if all(isinstance(each, torch.Tensor) for each in values):
        bodies.append((SAFETENSORS, safetensors.torch.save(kwargs or {"inputs": args[0]})))
        bodies += [] if kwargs else [(NPY, npy(args[0]))]
    forms: list[Fields] = [{"body": body} for body in bodies]
    if kwargs:
        forms.append({name: _field(value) for name, value in kwargs.items()})
    return forms


def _field(value: Any) -> tuple[str, bytes]:
    return (NPY, npy(value)) if isinstance(value, torch.Tensor) else (JSON, json.dumps(value).encode())


_BROKEN: tuple[tuple[str, bytes], ...] = (
    (JSON, b'{"x": [1.0'),
    (JSON, b"[[1.0], [1.0, 2.0]]"),
    (JSON, b"\xff\xfe"),
    (JSON, b'{"args": 3}'),
    (JSON, b'{"inputs": [1.0], "dtype": "float33"}'),
    (NPY, npy(torch.ones(4))[:-3]),
    (SAFETENSORS, safetensors.torch.save({"inputs": torch.ones(4)})[:-3]),
    (BYTES, saved(torch.ones(4))[:-30]),
    (BYTES, saved(torch.ones(1).expand(9999))),
    (BYTES, saved(torch.eye(3).to_sparse())),
)


@dataclass(frozen=True)
class _Like:
    """What the requests of a batch have in common, but for a few."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    options: dict[str, Any]
    field: str


@st.composite
def _likes(draw: st.DrawFn, kind: Kind) -> _Like:
    options = draw(st.sampled_from(kind.options))
    named = options or (kind.options != ({},) and draw(st.booleans()))
    shape, dtype = draw(st.sampled_from(kind.shapes)), draw(st.sampled_from(_TYPES))
    return _Like(shape, dtype, options, "x" if named else "")


@st.composite
def _requests(draw: st.DrawFn, kind: Kind, like: _Like, ways: tuple[str, ...]) -> Asked:
    way = draw(st.sampled_from(ways))
    if way == "broken":
        return Asked({"body": draw(st.sampled_from(_BROKEN))})
    if way == "plain":
        value = draw(st.sampled_from((3, 2.5, True, None, "text", ["a", 1])))
        form = (TEXT, b"text") if value == "text" else (JSON, json.dumps(value).encode())
        return Asked({"body": form}, ((value,), {}))
    like = draw(_likes(kind)) if way == "other" else like
    name = "y" if way == "field" else like.field
    tensor = draw(_tensors(like.shape, like.dtype))
    args, kwargs = ((), {name: tensor, **like.options}) if name else ((tensor,), {})
    return Asked(draw(st.sampled_from(_forms(args, kwargs))), (args, kwargs))


@st.composite
def batches(draw: st.DrawFn, kind: Kind) -> list[Asked]:
    """Several requests, most of which can share a call, as far as their shapes go."""
    if kind.name == "shown":
        return draw(st.lists(_plain_requests(), min_size=1, max_size=8))
    ways = draw(
        st.sampled_from((("like",), ("like",), ("like", "like", "other", "plain", "field", "broken")))
    )
    return draw(st.lists(_requests(kind, draw(_likes(kind)), ways), min_size=1, max_size=8))


_VALUES: tuple[Any, ...] = (
    *(True, 1, 1.0, "1", "true", False, 0, 0.0, -0.0, None, "", "é", [], {}, {"a": 1}, {"a": True}),
    *(["a", 1], {"b": 2, "a": 1}, {"a": 1, "b": 2}, 10**30, "\ud800", float("nan")),
)


@st.composite
def _plain_requests(draw: st.DrawFn) -> Asked:
    kwargs = {
        "how": draw(st.sampled_from([*models.ANSWERS, "unknown"])),
        "value": draw(st.sampled_from(_VALUES)),
    }
    form = (JSON, json.dumps(kwargs).encode())
    if kwargs["value"] == []:
        kwargs["value"] = torch.tensor([])
    return Asked({"body": form}, ((), kwargs))


# ---- the models ----------------------------------------------------------------------------------

KINDS = (
    Kind("double", "rows", "stack"),
    Kind("fields", "rows", "stack"),
    Kind("detector", "rows", "stack", row_lists=True),
    Kind("picky", "rows", "stack"),
    Kind("linear", "rows", "stack", rtol=1e-5),
    Kind("normed", "rows", "stack"),
    Kind("attends", "sequences", "stack", ((5, 8), (8,), (3, 8), (1, 8), (1, 5, 8)), rtol=1e-4),
    Kind("conv", "images", "stack", ((3, 6, 6), (6, 6), (3, 5, 5), (1, 3, 6, 6)), rtol=1e-4),
    Kind("framed", "frames", "stack", ((8,), (4,), (2,), (12,), (6,), (2, 4))),
    Kind("swapped", "pairs", "each", ((4, 3), (1, 3), (3, 3), (2, 3), (0, 3), (6,))),
    Kind("each_by_itself", "rows", "stack", ((4,), (2, 4), (0, 4), (0,))),
    Kind("centred", "rows", "stack", ((4,), (2,)), options=({}, {"centre": True}, {"centre": False})),
    Kind("scaled", "with_options", "stack", ((4,),), options=({"options": {"scale": 2.0}}, {"options": {}})),
    Kind("kept", "rows", "each", ((3, 4), (4,), (0,))),
    Kind("shared", "rows", "each", ((3, 4), (4,), (0,))),
    Kind("normed_in_training", "rows", "each", ((3, 4), (1, 4), (4,)), train_mode=True),
    Kind("shown", "shown_inputs", "each"),
)
