"""Describes a model that an interpreter is to load.

This is a module apart from ``loading``, because a stock worker's own process makes such a description. That
process cannot import modules that run in private interpreters only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoadRequest:
    """What a model is loaded from: plain values, which cross to an interpreter as JSON.

    Attributes:
        model_name: the name under which TorchServe serves it.
        model_dir: where TorchServe extracted its .mar.
        batch_size: the most requests in a batch.
        gpu: the number of the GPU that TorchServe gave to the worker; None for the CPU.
        limit_max_image_pixels: TorchServe's setting, for handlers that read images.
        metrics_config: path of TorchServe's file of the metrics that models declare.
        tracebacks: whether answers contain the traceback of what the model raised (ModelSettings).
        envelope: the name of TorchServe's request envelope; "" in a stock worker, which opens envelopes
            itself.
        alone: whether no other worker shares the model's state in an interpreter.
        most_answer_bytes: TorchServe's max_response_size; 0: there is no bound.
    """

    model_name: str
    model_dir: str
    batch_size: int
    gpu: int | None
    limit_max_image_pixels: bool
    metrics_config: str
    tracebacks: bool
    envelope: str = ""
    alone: bool = False
    most_answer_bytes: int = 0
