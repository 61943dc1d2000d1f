"""What the serving side, a layer above, does for who packs and verifies: it answers requests.

It is known by name only, and lives where an archive's code may run: in child processes and in private
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
    """A request that the model answers over HTTP as it does when it is called.

    Attributes:
        content_type: of its body.
        body: its body.
        batches: how requests become calls; None for a handler.
        parts: see Serving.
        part: see RequestRecord.
        notes: what could not be compared, and what a server must be told, in words.
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
    """What became of the example inputs as requests: one that works, or why there is none and what to do."""

    found: FoundRequest | None = None
    refusal: str = ""


class ServingSide(Protocol):
    """What answers, of the module above."""

    def find_request(
        self, make: Callable[[], Any], kind: EntryKind, held: Any, test: SelfTest, serving: Serving
    ) -> ServeCheck:
        """Make requests of a self-test's inputs, and have them answered alone and two in a batch.

        Args:
            make: loads the entry anew.
            kind: what it is.
            held: the self-test's unpickled content.
            test: the manifest's word on it.
            serving: how the entry is to be served; where that says nothing of batches, this finds out.
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
        """Where the answer to an archive's request differs from the self-test's, a line each.

        Args:
            make: loads the entry anew.
            kind: what it is.
            held: the self-test's unpickled content.
            test: the manifest's word on it, with the tolerance to compare by.
            serving: its word on how the entry is served.
            request: its word on the request.
            body: the request's.
        """


def serving_side() -> ServingSide:
    """Import it, and with it torch and what serving needs."""
    side: Any = importlib.import_module(_MODULE)
    found: ServingSide = side
    return found
