"""Answers: bodies, headers, statuses, errors, pieces, batches."""

from __future__ import annotations

from system.comparison import weights
from system.comparison.archive import Archive, Request, explain, post

ANSWERS = [
    "bytes",
    "bytearray",
    "str",
    "list",
    "dict",
    "int",
    "float",
    "none",
    "empty",
    "tensor",
    "odd",
    "big",
    "header",
    "body type",
    "count",
]
ERRORS = [
    {"raise": "value", "text": "no"},
    {"raise": "key"},
    {"raise": "memory"},
    {"raise": "cuda"},
    {"refuse": 400},
    {"refuse": 418, "text": "größe: <b>"},
    {"refuse": 500, "text": ""},
    {"exact": "tuple"},
    {"exact": "none"},
    {"exact": "long"},
    {"exact": "short"},
    {"answer": "unknown"},
]
DRESSED = [
    {"answer": "str", "headers": {"x-one": "1", "X-Two": "zwei", "content-type": "text/html"}},
    {"answer": "bytes", "type": "image/png"},
    {"answer": "dict", "type": "application/x-own; charset=utf-8"},
    {"answer": "str", "status": 201},
    {"answer": "str", "status": 404, "phrase": "not here"},
    {"answer": "list", "status": 500, "phrase": "broken", "headers": {"x-why": "broken"}},
    {"all": 202},
]

ARCHIVES = [
    Archive(
        "answers",
        handler="handler.py",
        requests=[
            *(post({"answer": kind}, x_asked="a header") for kind in ANSWERS),
            *map(post, ERRORS),
            *map(post, DRESSED),
            Request(b'{"answer": "str"}', "application/octet-stream"),
            Request(b'{"answer": "str"}', None),
            Request(b"{broken", "application/json"),
            Request(b"\xff\xfe", "text/plain"),
            Request(b"answer=str", "application/x-www-form-urlencoded"),
            Request(None, None, method="GET"),
            Request(None, None, method="OPTIONS"),
            Request(None, None, method="PUT"),
            Request(b"{}", "application/json", path="/predictions/{model}/2.0"),
            Request(b"{}", "application/json", path="/predictions/nobody"),
        ],
        statuses=[
            *[200] * 10,
            *[503, 200, 200, 200, 200],
            *[503, 507, 507, 507, 400, 418, 500, 503, 503, 503, 503, 503],
            *[200, 200, 200, 201, 404, 500, 202],
            *[200, 200, 503, 503, 503, 503, 200, 503, 404, 404],
        ],
    ),
    Archive(
        "described",
        handler="handler.py",
        serialized="model.pt",
        make=weights.linear,
        requests=[
            post([1.0, 2.0, 3.0]),
            explain([1.0, 2.0, 3.0]),
            explain({"inputs": [1.0, 2.0, 3.0], "target": 1}),
            explain([1.0]),
            Request(None, None, path="/models/{model}?customized=true", method="MANAGEMENT"),
        ],
        statuses=[200] * 5,
    ),
    Archive(
        "streaming",
        handler="handler.py",
        requests=[
            post({"pieces": 3, "name": "a"}),
            post({"pieces": 0, "name": "b"}),
            post({"pieces": 1, "name": "größe"}),
            post({"pieces": 40, "name": "c"}),
        ],
        statuses=[200, 200, 200, 200],
    ),
    Archive(
        "batching",
        handler="handler.py",
        options={"batch_size": 4, "max_batch_delay": 2000},
        requests=[
            tuple(post({"n": n}) for n in range(4)),
            tuple(post({"n": n, "bad": n == 2}) for n in range(4)),
            post({"n": 9}),
        ],
        statuses=[200] * 4 + [200, 200, 418, 200] + [200],
    ),
]
