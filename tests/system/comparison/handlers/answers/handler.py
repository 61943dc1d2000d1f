"""Answers of every kind, as the request wishes."""

import json

import torch
from ts.utils.util import PredictionException


def _wish(row):
    body = row.get("body") or row.get("data")
    return json.loads(bytes(body)) if isinstance(body, (bytes, bytearray)) else body


def _answer(wish, index, context):
    for name, value in wish.get("headers", {}).items():
        context.set_response_header(index, name, value)
    if "type" in wish:
        context.set_response_content_type(index, wish["type"])
    if "status" in wish:
        context.set_response_status(wish["status"], wish.get("phrase", ""), index)
    kinds = {
        "bytes": lambda: b"\x00\xffbytes",
        "bytearray": lambda: bytearray(b"array"),
        "str": lambda: "größe",
        "list": lambda: [1, 2.5, None, "x"],
        "dict": lambda: {"b": 1, "a": {"c": [True]}},
        "int": lambda: 7,
        "float": lambda: float("nan"),
        "none": lambda: None,
        "empty": lambda: "",
        "tensor": lambda: torch.arange(4.0),
        "odd": object,
        "big": lambda: "x" * 3_000_000,
        "header": lambda: context.get_request_header(index, "x-asked"),
        "body type": lambda: context.get_request_header(index, "body"),
        "count": lambda: len(context.request_ids),
    }
    return kinds[wish["answer"]]()


class Handler:
    def initialize(self, context):
        self.context = context

    def handle(self, data, context):
        wishes = [_wish(row) for row in data]
        first = wishes[0]
        if "raise" in first:
            kinds = {"value": ValueError, "memory": MemoryError, "cuda": RuntimeError, "key": KeyError}
            raise kinds[first["raise"]](first.get("text", "CUDA says no"))
        if "refuse" in first:
            raise PredictionException(first.get("text", "refused"), first["refuse"])
        if "all" in first:
            context.set_all_response_status(first["all"], "all of them")
            return ["all"] * len(data)
        if "exact" in first:
            return {"tuple": ("a",), "none": None, "long": ["a", "b", "c"], "short": []}[first["exact"]]
        return [_answer(wish, index, context) for index, wish in enumerate(wishes)]
