"""Channels of one event loop: workers that answer, beside one that does not speak the protocol."""

from __future__ import annotations

import os
import select

import otf

from interpool.native import InterpreterManager, _native


def test_headers_reach_workers_in_utf_8(manager: InterpreterManager) -> None:
    inbox, done = _native.Inbox(), os.eventfd(0)
    channel = _native.Channel(inbox, otf.load())
    try:
        manager.serve(
            channel, module="serving_guest", function="echo", worker="w", affinity="m", done_fd=done
        )
        assert select.select([inbox], [], [], 60)[0]
        inbox.take()
        headers: dict[bytes, bytes | str] = {b"latin": b"gr\xf6\xdfe", b"text": "\u8def\U0001f642"}
        channel.predict([(b"request-0", headers, [(b"body", b"application/octet-stream", b"asked")])])
        assert select.select([inbox], [], [], 60)[0]
        ((_, reply),) = inbox.take()
        assert reply is not None
        ((_, _, _, _, frame),) = reply[2]
        sent = {"latin": "gr\xf6\xdfe", "text": "\u8def\U0001f642"}
        assert frame == otf.predict(b"asked", headers=sent)
    finally:
        channel.close()
        os.eventfd_read(done)
        os.close(done)


def test_a_worker_that_sends_no_answer_ends_alone(manager: InterpreterManager) -> None:
    inbox, done = _native.Inbox(), os.eventfd(0)
    answering, nonsense = (_native.Channel(inbox, otf.load()) for _ in range(2))
    try:
        for channel, function in ((answering, "answer"), (nonsense, "follow")):
            manager.serve(
                channel,
                module="serving_guest",
                function=function,
                worker=function,
                affinity="m",
                done_fd=done,
            )
            assert select.select([inbox], [], [], 60)[0]
        brought = []
        while (nonsense.number, None) not in brought or len(brought) < 2:
            assert select.select([inbox], [], [], 60)[0]
            brought += inbox.take()
        assert (answering.number, (200, b"answer", [])) in brought
        assert nonsense.is_closed
        assert not answering.is_closed
    finally:
        answering.close()
        nonsense.close()
        ended = 0
        while ended < 2:
            ended += os.eventfd_read(done)
        os.close(done)
