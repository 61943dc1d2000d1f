"""What a model's workers said: lines of the model log, and metrics."""

from __future__ import annotations

import re
from typing import NamedTuple

from local_server import TorchServe
from system.comparison.exchange import plain

_LINE = re.compile(
    r"^\S+ \[(?P<level>\w+) *\] W-\d+-(?P<model>.+)_1\.0-(?P<stream>stdout|stderr) MODEL_LOG - (?P<text>.*)$"
)
_METRIC = re.compile(
    r"W-\d+-(?P<model>.+)_1\.0-stdout org\.pytorch\.\S+ - result=\[METRICS\](?P<metric>.*), pattern="
)
# What interpool adds to a line of TorchServe's own.
_REQUESTS = re.compile(r" \[requests? [\w\-, ]+\]$")
# TorchServe's worker says these of itself.
_OF_THE_WORKER = re.compile(
    r"s_name_part0=|Listening on port: |Successfully loaded .*metrics\.yaml|\[PID\]\d|Torch worker started\.|"
    r"Python runtime: |Connection accepted: |Backend received inference at: |Frontend disconnected\.|"
    r"model_name: |interpool: served by a worker process of its own"
)
# Modules of the environment say these when they are imported, once in an interpreter.
_OF_THE_ENVIRONMENT = re.compile(
    r"OpenVINO is not enabled|proceeding without onnxruntime|Torch TensorRT not enabled"
)
# The caller's lines in the stack that logging prints for a record that it cannot format.
_FRAME = re.compile(
    r'  File ".*(ts/model_service_worker|interpool/handler/backend/(service|model_loads))\.py", line \d+, in '
)
# Metrics that say how long something took.
_DURATIONS = re.compile(r"^(HandlerTime|PredictionTime|\w*_time|ts_handler_\w+)\.")


class Said(NamedTuple):
    """The lines of one model: each stream's in order, and metrics in order."""

    stdout: list[str]
    stderr: list[str]
    metrics: list[str]


def said(server: TorchServe, model: str) -> Said:
    """All that a model's workers have said so far."""
    lines: dict[str, list[str]] = {"stdout": [], "stderr": []}
    skip_next = {"stdout": False, "stderr": False}
    for line in server.model_log().splitlines():
        found = _LINE.match(line)
        if found is None or found["model"] != model:
            continue
        text, stream = _REQUESTS.sub("", found["text"]), found["stream"]
        frame = _FRAME.match(text) is not None
        if not (frame or skip_next[stream] or _OF_THE_WORKER.match(text) or _OF_THE_ENVIRONMENT.match(text)):
            lines[stream].append(f"{found['level']} {plain(server, text)}")
        skip_next[stream] = frame  # its source follows
    metrics = []
    for line in (server.logs / "ts_log.log").read_text().splitlines():
        found = _METRIC.search(line)
        # What interpool says in ts_log of a worker that ended looks like a metric there, and is none.
        if found and found["model"] == model and not found["metric"].startswith("interpool: "):
            metrics.append(_metric(found["metric"]))
    return Said(lines["stdout"], lines["stderr"], metrics)


def _metric(text: str) -> str:
    """``name.unit:value|#dimensions|#type:T|#hostname:H,time,request`` without what differs each time."""
    text = re.sub(r"\|#hostname:[^,]*,\d+(,.*)?$", "|#hostname", text)
    return re.sub(r":[-+.\deE]+\|", ":DURATION|", text, count=1) if _DURATIONS.match(text) else text
