"""What is compared: ordinary archives, as people have them, and the requests that each is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HANDLERS = Path(__file__).parent / "handlers"
JSON = "application/json"
BINARY = "application/octet-stream"


@dataclass(frozen=True)
class Request:
    """One HTTP request to a model; ``{model}`` in its path is the model's name."""

    body: bytes | None = None
    content_type: str | None = None
    path: str = "/predictions/{model}"
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)


def post(value: object, **more: str) -> Request:
    """A prediction for a JSON value."""
    headers = {name.replace("_", "-"): text for name, text in more.items()}
    return Request(json.dumps(value).encode(), JSON, headers=headers)


def post_bytes(body: bytes, content_type: str = BINARY) -> Request:
    return Request(body, content_type)


def explain(value: object) -> Request:
    return Request(json.dumps(value).encode(), JSON, path="/explanations/{model}")


# A step is one request, or several that are sent at once.
Step = Request | tuple[Request, ...]
Files = Callable[[Path], None]


# For what remembers: each interpreter has states of its own, and one may be looked after as a request comes.
ONE_INTERPRETER = "interpool: {pool: one, interpreters: 1}\n"


@dataclass(frozen=True)
class Archive:
    """An archive as the stock archiver makes it, and what is asked of it.

    Args:
        name: the model's, and of its folder below ``handlers/`` unless ``folder`` names another.
        handler: a file of the folder, ``FILE.py:FUNCTION``, or the name of one that TorchServe ships.
        requests: in this order.
        model_file: a file of the folder.
        serialized: name of the weights' file, which ``make`` writes.
        make: writes further files into a folder, before the archive is made there.
        extra: files and folders of the folder that go into the archive beside the handler.
        config: the model's own configuration.
        requirements: the file's text.
        options: of the registration.
        unordered: log lines come from several threads or workers; their order means nothing.
        version: the archive's.
        statuses: what the answers' statuses must be, lest both servers fail alike.
    """

    name: str
    handler: str
    requests: Sequence[Step]
    statuses: Sequence[int]
    folder: str = ""
    model_file: str | None = None
    serialized: str | None = None
    make: Files | None = None
    extra: Sequence[str] = ()
    config: str = ""
    requirements: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    unordered: bool = False
    version: str = "1.0"

    @property
    def steps(self) -> list[Request]:
        """All requests, in the order of their answers."""
        return [each for step in self.requests for each in ([step] if isinstance(step, Request) else step)]

    @property
    def source(self) -> Path:
        return HANDLERS / (self.folder or self.name)
