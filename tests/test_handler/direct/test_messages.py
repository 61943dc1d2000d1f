"""TorchServe's worker protocol from the frontend's side, against TorchServe's own code for the other side."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ts.context import Context
from ts.protocol.otf_message_handler import create_predict_response, retrieve_msg

from interpool.handler.backend.wire import FrameReader
from interpool.handler.direct.messages import (
    BATCH_END,
    PREDICT,
    Parameter,
    Reply,
    ReplyReader,
    request_parts,
)

NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)


@given(st.lists(st.tuples(st.dictionaries(NAMES, NAMES, max_size=4), st.binary(max_size=200)), max_size=4))
def test_torchserve_reads_the_batch_that_is_written(requests: list[tuple[dict[str, str], bytes]]) -> None:
    parts = [PREDICT]
    for number, (headers, body) in enumerate(requests):
        encoded = {name.encode(): value.encode() for name, value in headers.items()}
        parts += request_parts(b"id-%d" % number, encoded, [Parameter(b"body", b"", body)])
    _, read = retrieve_msg(FrameReader(b"".join([*parts, BATCH_END])))
    assert [bytes(each["requestId"]) for each in read] == [b"id-%d" % n for n in range(len(requests))]
    for each, (headers, body) in zip(read, requests, strict=True):
        found = {bytes(h["name"]).decode(): bytes(h["value"]).decode() for h in each["headers"]}
        assert found == headers
        assert [bytes(parameter["value"]) for parameter in each["parameters"]] == [body]


def test_large_values_are_not_copied() -> None:
    large = bytes(1 << 20)
    parts = request_parts(b"id", {}, [Parameter(b"a", b"", large), Parameter(b"b", b"", b"small")])
    assert any(part is large for part in parts)
    _, (read,) = retrieve_msg(FrameReader(b"".join([PREDICT, *parts, BATCH_END])))
    assert [parameter["name"] for parameter in read["parameters"]] == ["a", "b"]


def _written(answers: list[bytes], code: int) -> bytes:
    ids: dict[int, str] = {number: f"id-{number}" for number in range(len(answers))}
    context: Any = Context("m", "/m", {}, len(answers), None, "1")
    context.request_ids = ids
    from ts.context import RequestProcessor

    context.request_processor = [RequestProcessor({}) for _ in answers]
    context.set_response_header(0, "x-one", "1")
    return bytes(create_predict_response(answers, ids, "said", code, context))


@given(
    st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.integers(1, 64), min_size=1, max_size=30),
)
def test_replies_are_read_however_they_arrive(batches: list[list[bytes]], sizes: list[int]) -> None:
    sent = b"".join(_written(answers, 200) for answers in batches)
    reader, found, at = ReplyReader(), list[Reply](), 0
    while at < len(sent):
        size = sizes[at % len(sizes)]
        found += reader.feed(sent[at : at + size])
        at += size
    assert [[each.body for each in reply.predictions] for reply in found] == batches
    for reply in found:
        assert reply.code == 200
        assert (b"x-one", b"1") in reply.predictions[0].headers
        ids = [each.request_id for each in reply.predictions]
        assert ids == [b"id-%d" % number for number in range(len(ids))]
