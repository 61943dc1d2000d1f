"""What the pool host sends to an interpreter about a worker, with each frame of it.

Text, because it passes through the pool, which hands it on as it is. Both sides are in one
process: descriptors mean the same to them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Self

from interpool.handler.signature_policy import SignaturePolicy


@dataclass(frozen=True)
class WorkerToken:
    """A worker, as far as answering for it needs.

    Attributes:
        stdout: descriptor of the pipe for what its calls print.
        stderr: likewise.
        metrics_config: TorchServe's file of the metrics that models declare.
        refusal: why its model's settings cannot be, or "".
        tracebacks: its model's setting of that name.
        failed_load: descriptor of the interpreter's end of its socket pair (failed_load.py).
        policy: what its archive must prove.
        ordinary: whether its archive is ordinary.
        own_directory: whether the threads of its calls have a working directory of their own.
        arguments: the ``sys.argv`` of a worker in its place.
        pid: its shim's process.
        reports: descriptor for what the host is to hear of it (worker_reports.py), or -1.
        state: number of the model's state that its calls change; a later one is another state.
        own_state: whether no other worker has that state.
        model_dir: its model's directory.
        unwatched: whether interpool does not look for what its model leaves: because no other model meets
            it, or its settings say so.
        most_answer_bytes: TorchServe's max_response_size; 0: without TorchServe, there is no bound.
        notes: whether TorchServe's own lines of each request are printed.
        metrics: whether metrics' lines are printed, which TorchServe's frontend reads.
    """

    stdout: int
    stderr: int
    metrics_config: str
    refusal: str
    tracebacks: bool
    failed_load: int
    policy: SignaturePolicy
    ordinary: bool = False
    own_directory: bool = False
    arguments: list[str] = field(default_factory=list)
    pid: int = 0
    reports: int = -1
    state: int = 0
    own_state: bool = False
    model_dir: str = ""
    unwatched: bool = False
    most_answer_bytes: int = 0
    notes: bool = True
    metrics: bool = True

    def as_text(self) -> str:
        """JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Self:
        """From ``as_text``."""
        fields = json.loads(text)
        return cls(**{**fields, "policy": SignaturePolicy(**fields["policy"])})
