"""A request of the serving benchmark in the Open Inference Protocol: its JSON is a tensor's one element."""

from __future__ import annotations

import json
from typing import Any

PATH = "/v2/models/"
REQUEST, ANSWER = "request", "answer"  # the tensors' names


def wrapped(request: dict[str, Any]) -> dict[str, Any]:
    """What is sent; the answer repeats ``id``, so that answers can be compared byte by byte."""
    tensor = {"name": REQUEST, "shape": [1, 1], "datatype": "BYTES", "data": [json.dumps(request)]}
    return {"id": "asked", "inputs": [tensor]}


def unwrapped(said: dict[str, Any]) -> Any:
    """What the model answered."""
    return json.loads(said["outputs"][0]["data"][0])
