"""The interface through which packing and verification have requests answered by the serving layer above.

The layer is imported by name, only in processes that may run an archive's code: child processes and private
interpreters.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from interpool.native.archive.format import Batches, Parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from interpool.native.archive.format import EntryKind, RequestRecord, SelfTest, Serving

_MODULE: Final = "interpool.handler.backend.serve_check"


@dataclass(frozen=True)
class FoundRequest:
    """An HTTP request whose answer equals that of a direct call of the model.

    Attributes:
        content_type: of its body.
        body: its body.
        batches: how requests become calls; None for a handler.
        parts: see Serving.
        part: see RequestRecord.
        notes: descriptions of values that could not be compared, and of required server settings.
        answer_bytes: see RequestRecord.
    """

    content_type: str
    body: bytes
    batches: Batches | None
    parts: Parts
    part: int | None
    notes: list[str] = field(default_factory=list)
    answer_bytes: int = 0


@dataclass(frozen=True)
class ServeCheck:
    """The result of serving the example inputs: a working request, or why there is none and what to do."""

    found: FoundRequest | None = None
    refusal: str = ""


class ServingSide(Protocol):
    """The functions of the serving layer."""

    def find_request(
        self, make: Callable[[], Any], kind: EntryKind, held: Any, test: SelfTest, serving: Serving
    ) -> ServeCheck:
        """Make requests of a self-test's inputs, and answer them one at a time and two in a batch.

        Args:
            make: loads the entry anew.
            kind: of the entry.
            held: the self-test's unpickled content.
            test: the self-test in the manifest.
            serving: how to serve the entry; if it does not set batches, the result does.
        """

    def repeat_request(
        self,
        make: Callable[[], Any],
        kind: EntryKind,
        held: Any,
        test: SelfTest,
        serving: Serving,
        request: RequestRecord,
        body: bytes,
    ) -> list[str]:
        """Return differences between the answers to an archive's request and its self-test, one line each.

        Args:
            make: loads the entry anew.
            kind: of the entry.
            held: the self-test's unpickled content.
            test: the self-test in the manifest, with the tolerance to use.
            serving: how the entry is served, from the manifest.
            request: the request in the manifest.
            body: the request's body.
        """


def serving_side() -> ServingSide:
    """Import the serving layer, and with it torch and its other dependencies."""
    side: Any = importlib.import_module(_MODULE)
    found: ServingSide = side
    return found
