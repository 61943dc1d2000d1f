"""The settings of archives that are served without TorchServe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, TypeAdapter, ValidationError

from interpool.handler.config import PositiveSeconds
from interpool.handler.errors import SettingsError
from interpool.handler.torchserve import ENVELOPES

MOST = (1 << 31) - 1
"""The largest number in TorchServe's messages and settings."""
_Count = Annotated[int, Field(ge=1, le=MOST)]
_Envelope = Annotated[
    str, Field(pattern=f"^({'|'.join(ENVELOPES)})?$", json_schema_extra={"enum": list(ENVELOPES)})
]


def _described(description: str, default: str, option: str) -> Any:
    """A field's description, what decides its value by default, and its option of ``interpool run``."""
    return Field(description=description, json_schema_extra={"default_text": default, "option": option})


@dataclass(frozen=True)
class Options:
    """The caller's settings for archives. If one is None, the archive's own value counts.

    ``interpool run`` makes its options of them, and docs/settings.md its table.
    """

    workers: Annotated[
        _Count | None,
        _described(
            "Workers of each model: the batches that may be in flight.",
            "`minWorkers`, else 4 for each interpreter",
            "--workers",
        ),
    ] = None
    batch_size: Annotated[
        _Count | None,
        _described("The most requests in a batch.", "`batchSize`, else 1", "--batch-size"),
    ] = None
    batch_delay_ms: Annotated[
        Annotated[int, Field(ge=0, le=MOST, json_schema_extra={"unit": "ms"})] | None,
        _described(
            "How long a request waits for others of its batch.",
            "`maxBatchDelay`, else 100",
            "--max-batch-delay",
        ),
    ] = None
    queue_size: Annotated[
        _Count | None,
        _described(
            "The most requests of a model that wait for a worker.", "`jobQueueSize`, else 100", "--queue"
        ),
    ] = None
    response_timeout_s: Annotated[
        PositiveSeconds | None,
        _described("How long a batch may take.", "`responseTimeout`, else 120", "--response-timeout"),
    ] = None
    client_timeout_s: Annotated[
        PositiveSeconds | None,
        _described(
            "Time after which a request that has no answer is refused with 408.",
            "`clientTimeoutInMills`, else none",
            "--client-timeout",
        ),
    ] = None
    service_envelope: Annotated[
        _Envelope,
        _described("[Form of requests and answers](requests.md#envelopes).", "none", "--service-envelope"),
    ] = ""

    @classmethod
    def of(cls, values: Mapping[str, Any], shown: Callable[[str], str] = str) -> Self:
        """Options from values of any type, such as a configuration's.

        Args:
            values: by the names of the attributes.
            shown: returns what the user calls a value, by the attribute's name.

        Raises:
            SettingsError: a value is not of its type, or out of its range.
        """
        try:
            return TypeAdapter(cls).validate_python(dict(values))
        except ValidationError as error:
            wrong = error.errors()[0]
            name = str(wrong["loc"][0])
            raise SettingsError(f"`{shown(name)}` cannot be {wrong['input']!r}: {wrong['msg']}") from None
