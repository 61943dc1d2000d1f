"""Requests and answers, natively and by TorchServe's own code: never a difference, with any content."""

from __future__ import annotations

import math
from typing import Any

import otf
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from interpool_testing import Code
from many_examples import EXAMPLES

INSIDE = """
import collections, enum, functools, json, logging, os, sys, types, unittest.mock
import numpy, torch
import interpool.handler.backend.service
from interpool.handler.backend import codec
from interpool.handler.backend.wire import FrameReader
from ts.context import Context, RequestProcessor
from ts.protocol.otf_message_handler import create_predict_response, retrieve_msg
from ts.service import Service

logged = []
class Log(logging.Handler):
    def emit(self, record):
        text = record.getMessage().rpartition(":")[0]  # behind it stands the time
        logged.append((record.levelname, record.filename, record.lineno, text))
logging.getLogger().addHandler(Log())

def outcome(work):
    logged.clear()
    try:
        done = repr(work())
    except Exception as error:
        done = f"{type(error).__name__}: {error}"
    return done, list(logged)

def decode(frame, **environment):
    os.environ.update(environment)
    try:
        stock = outcome(lambda: retrieve_msg(FrameReader(frame))[1])
        return stock, outcome(lambda: codec.receive_batch(frame))
    finally:
        for name in environment:
            del os.environ[name]

def parts(taken):
    processors, inputs, ids = taken
    return [type(each).__name__ for each in processors], [vars(each) for each in processors], inputs, ids

def take(frame, **environment):
    os.environ.update(environment)
    try:
        stock = outcome(lambda: parts(codec._stock_retrieve(retrieve_msg(FrameReader(frame))[1])))
        return stock, outcome(lambda: parts(Service.retrieve_data_for_inference(codec.take_batch(frame))))
    finally:
        for name in environment:
            del os.environ[name]

def taken_at_once(frame):
    return isinstance(codec.take_batch(frame), tuple)

replaced = functools.partial(unittest.mock.patch.object, create=True)

def aside(self, name):
    return {"a": "mine"} if name == "_response_header" else object.__getattribute__(self, name)

def taken_with(change, frame):
    with eval(change):
        return take(frame), taken_at_once(frame)

class Number(enum.IntEnum):
    ONE = 1

class Text(str):
    def encode(self, *_):
        return b"its own"

Pair = collections.namedtuple("Pair", "a b")
odd = {
    "bytearray": bytearray(b"x"), "numpy": numpy.float64(0.1), "tensor": torch.ones(2), "set": {1},
    "enum": Number.ONE, "str of its own": Text("y"), "namedtuple": Pair(1, (2.5, None)), "huge": 10**5000,
    "ordered": collections.OrderedDict(b=1, a=[]), "keys": {1: 2, None: 3, True: 4, 1.5: 5},
    "object": object(), "in a list": [object()], "surrogate": "\\ud800", "odd key": {(1, 2): 3},
    "NaN": float("nan"), "memoryview": memoryview(b"z"), "array": numpy.ones(2), "Text inside": [Text("z")],
    "generator": (i for i in ()),
}
circle = []
circle.append([circle])
odd["circle"] = circle
deep = []
for _ in range(150):
    deep = [deep]
odd["deep"] = deep

def contexts(rows):
    made = []
    for _ in range(2):
        context = Context("m", "/m", {}, 1, None, "0.12")
        context.request_processor = [RequestProcessor({}) for _ in rows]
        for index, (status, phrase, headers) in enumerate(rows):
            context.set_response_status(status, phrase, index)
            for name, value in headers.items():
                context.set_response_header(index, name, value)
        made.append(context)
    return made

def encode(answers, rows, stop=None):
    ids = {index: f"id-{index}" for index in range(len(rows))}
    found = []
    for how, context in zip((create_predict_response, codec.encode_answers), contexts(rows)):
        if stop is not None:
            context.stopping_criteria = [lambda _: stop] * len(rows)
        done, _ = outcome(lambda: how(answers, ids, "Prediction success", 200, context=context))
        found.append((done, [context.get_response_headers(index) for index in ids]))
    return found

def encode_odd(name):
    return encode([odd[name]], [(200, None, {})])

def by_torchserve(answers, rows):
    asked = []
    stock = codec.create_predict_response
    codec.create_predict_response = lambda *args: asked.append(1) or stock(*args)
    try:
        encode(answers, rows)
    finally:
        codec.create_predict_response = stock
    return len(asked)

def encode_with(change):
    with eval(change):
        return encode([[1]], [(200, "fine", {"content-type": "text/plain"})])

def encode_by_context_of_its_own(change):
    found = []
    for how, context in zip((create_predict_response, codec.encode_answers), contexts([(200, None, {})])):
        exec(change)
        found.append(outcome(lambda: how([b"x"], {0: "id"}, "fine", 200, context=context)))
    return found
"""
OK = (200, None, {})


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
names = st.one_of(st.sampled_from([b"data", b"body", b""]), texts.map(str.encode), st.binary(max_size=4))
kinds = st.one_of(
    st.sampled_from(
        [b"application/json", b"text/plain", b"text", b"", b"application/octet-stream", b"application/json;x"]
    ),
    st.binary(max_size=5),
)
bodies = st.one_of(
    st.binary(max_size=60),
    texts.map(str.encode),
    st.sampled_from(
        [b'{"a": [1, 2.5, null, "\\ud83d"]}', b"[", b"nan", b"NaN", b"\xff", b"", b'{"a":1,"a":2}']
    ),
)
fields: dict[str, Any] = {"id": names, "headers": st.lists(st.tuples(names, names), max_size=3)}
requests = st.fixed_dictionaries(
    {**fields, "parameters": st.lists(st.tuples(names, kinds, bodies), max_size=3)}
)


def frame_of(batch: list[dict[str, Any]]) -> bytes:
    frame = b"I"
    for request in batch:
        frame += otf.field(request["id"])
        for pair in request["headers"]:
            frame += b"".join(map(otf.field, pair))
        frame += otf.integer(-1)
        for triple in request["parameters"]:
            frame += b"".join(map(otf.field, triple))
        frame += otf.integer(-1)
    return frame + otf.integer(-1)


many = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.long
@many
@given(batch=st.lists(requests, max_size=3))
def test_a_batch_is_decoded_as_torchserve_decodes_it(code: Code, batch: list[dict[str, Any]]) -> None:
    """Types, what is raised, and what is logged in whose name."""
    stock, ours = code.call("decode", frame_of(batch))
    assert ours == stock


@many
@given(batch=st.lists(requests, max_size=3))
@example(batch=[{"id": b"\xff", "headers": [], "parameters": []}])
@example(batch=[{"id": b"1", "headers": [(b"body", b"1")], "parameters": [(b"body", b"text", b"x")] * 2}])
@example(batch=[{"id": b"1", "headers": [], "parameters": [(b"", b"application/json", b" \t[1]\n\r ")]}])
@example(batch=[{"id": b"1", "headers": [], "parameters": [(b"", b"application/json", b'"\xc3\xa9" x')]}])
@example(batch=[{"id": b"1", "headers": [], "parameters": [(b"", b"application/json", b"\xef\xbb\xbf1")]}])
@example(batch=[{"id": b"1", "headers": [], "parameters": [(b"", b"application/json", b"[1]\xc2\xa0")]}])
def test_a_batch_is_taken_apart_as_torchserve_takes_it(code: Code, batch: list[dict[str, Any]]) -> None:
    """What handlers get, their requests' headers and ids; what is raised, and logged in whose name."""
    stock, ours = code.call("take", frame_of(batch))
    assert ours == stock


USUAL = [{"id": b"1", "headers": [(b"a", b"b")], "parameters": [(b"c", b"application/json", b"[1]")]}]


def test_a_usual_batch_is_taken_apart_at_once(code: Code) -> None:
    assert code.call("taken_at_once", frame_of(USUAL))


@pytest.mark.parametrize(
    "change",
    [
        "replaced(Service, 'predict', lambda self, batch: None)",
        "replaced(Service, 'retrieve_data_for_inference', staticmethod(codec._stock_retrieve))",
        "replaced(RequestProcessor, '__init__', lambda self, headers: None)",
        "replaced(json, 'loads', lambda text: 'mine')",
        "replaced(json.JSONDecoder, 'decode', lambda self, text: 'mine')",
        "replaced(json, '_default_decoder', json.JSONDecoder(parse_int=str))",
        "replaced(codec._protocol, 'json', types.SimpleNamespace(loads=lambda text: 'mine'))",
    ],
)
def test_a_models_replacements_count_for_requests(code: Code, change: str) -> None:
    (stock, ours), at_once = code.call("taken_with", change, frame_of(USUAL))
    assert ours == stock
    assert not at_once
    assert code.call("taken_at_once", frame_of(USUAL))


@pytest.mark.parametrize("wanted", ["true", "false", ""])
def test_a_model_may_have_its_texts_undecoded(code: Code, wanted: str) -> None:
    parameters = [(b"a", b"application/json", b"[1]"), (b"b", b"text/plain", b"x")]
    frame = frame_of([{"id": b"1", "headers": [], "parameters": parameters}])
    stock, ours = code.call("decode", frame, TS_DECODE_INPUT_REQUEST=wanted)
    assert ours == stock
    assert ("bytearray(b'[1]')" in ours[0]) is (wanted != "true")


@pytest.mark.parametrize("how", ["decode", "take"])
def test_a_message_cut_short_is_refused_as_torchserve_refuses_it(code: Code, how: str) -> None:
    frame = frame_of([{"id": b"1", "headers": [(b"a", b"b")], "parameters": [(b"c", b"text", b"d")]}])
    for length in range(40):
        stock, ours = code.call(how, frame[:length])
        assert ours == stock, length


@many
@given(noise=st.binary(max_size=80), kept=st.integers(0, 60), how=st.sampled_from(["decode", "take"]))
def test_noise_is_refused_as_torchserve_refuses_it(code: Code, noise: bytes, kept: int, how: str) -> None:
    """Behind a beginning that is right."""
    stock, ours = code.call(how, frame_of(USUAL)[:kept] + noise)
    assert ours == stock


trees = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
    ),
    max_leaves=12,
)
answers = st.one_of(trees, st.binary(max_size=20))
headers = st.dictionaries(st.one_of(st.just("content-type"), texts), texts, max_size=3)
rows = st.tuples(
    st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1), st.integers(2**31, 2**40)),
    st.one_of(st.none(), texts),
    headers,
)


@many
@given(batch=st.lists(st.tuples(answers, rows), max_size=3))
@example(batch=[(math.nan, OK), (-0.0, OK), (1e16, OK)])
@example(batch=[("\ud800", OK)])
@example(batch=[(1, (200, "\N{BULLET}", {"content-type": "\N{BULLET}"}))])
@example(batch=[(b"", (200, "", {"ts_stream_next": "true"})), (b"", (200, "", {"ts_stream_next": "false"}))])
def test_answers_are_encoded_as_torchserve_encodes_them(code: Code, batch: list[Any]) -> None:
    """The bytes, what is raised, and what becomes of the context."""
    stock, ours = code.call("encode", [answer for answer, _ in batch], [row for _, row in batch])
    assert ours == stock


ODD = """bytearray numpy tensor set enum str-of-its-own namedtuple huge ordered keys object in-a-list
surrogate odd-key NaN memoryview array Text-inside generator circle deep"""


@pytest.mark.parametrize("name", ODD.split())
def test_answers_of_any_type_are_encoded_as_torchserve_encodes_them(code: Code, name: str) -> None:
    stock, ours = code.call("encode_odd", name.replace("-", " "))
    assert ours == stock


@pytest.mark.parametrize("stop", [True, False, None])
def test_stopping_criteria_are_heeded(code: Code, stop: bool | None) -> None:
    stock, ours = code.call("encode", [b"x"], [OK], stop=stop)
    assert ours == stock


def test_fewer_answers_than_requests_fail_as_in_torchserve(code: Code) -> None:
    stock, ours = code.call("encode", [b"x"], [OK, OK])
    assert ours == stock
    assert "IndexError" in ours[0]


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ("replaced(json.JSONEncoder, 'encode', lambda self, value: 'mine')", "mine"),
        ("replaced(json.JSONEncoder, 'default', lambda self, value: 'mine')", ""),
        ("replaced(json, 'dumps', lambda *args, **kwargs: 'mine')", "mine"),
        ("replaced(codec._protocol, 'json', types.SimpleNamespace(dumps=lambda *_, **__: 'mine'))", "mine"),
        ("replaced(Context, 'get_response_status', lambda self, index: (201, 'mine'))", "mine"),
        ("replaced(Context, 'get_response_content_type', lambda self, index: 'mine')", "mine"),
        ("replaced(Context, 'get_response_headers', lambda self, index: {'mine': 'mine'})", "mine"),
        ("replaced(RequestProcessor, 'get_response_headers', lambda self: {'mine': 'mine'})", "mine"),
        ("replaced(RequestProcessor, '__getattribute__', aside)", "mine"),
        ("replaced(RequestProcessor, 'get_response_status_phrase', lambda self: 'mine')", "mine"),
    ],
)
def test_a_models_replacements_count_for_answers(code: Code, change: str, seen: str) -> None:
    for _ in range(2):  # what is put back is as it was
        stock, ours = code.call("encode_with", change)
        assert ours == stock
        assert seen in ours[0]
        stock, ours = code.call("encode", [[1]], [OK])
        assert ours == stock
        assert "mine" not in ours[0]


@pytest.mark.parametrize(
    "change",
    [
        "context.get_response_status = lambda index: (201, 'mine')",
        "context.get_response_headers = types.MethodType(lambda self, index: {'a': 'mine'}, context)",
        "context.request_processor = {0: context._request_processor[0]}",
        "context.request_processor = [type('Mine', (RequestProcessor,), {})({})]",
        "context.request_processor = []",
        "context.request_processor[0]._response_header = collections.OrderedDict(a='mine')",
        "context.__class__ = type('Mine', (Context,), {'get_response_status': lambda *_: (201, 'mine')})",
    ],
)
def test_a_context_may_be_a_models_own(code: Code, change: str) -> None:
    stock, ours = code.call("encode_by_context_of_its_own", change)
    assert ours == stock


def test_usual_answers_need_no_code_of_torchserves(code: Code) -> None:
    usual = [b"x", "y", {"a": [1, 2.5, None, "\N{BULLET}"]}, [], 3, 4.5, True]
    assert code.call("by_torchserve", usual, [(200, "OK", {"content-type": "text/plain"})] * len(usual)) == 0
    assert code.call("by_torchserve", [{(1, 2): 3}], [OK]) == 1
