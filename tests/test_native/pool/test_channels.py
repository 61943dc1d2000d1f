"""Channels: an event loop of this process asks workers without a socket."""

from __future__ import annotations

import json
import os
import random
import select
import string
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import otf
import pytest
from interpool_testing import every_interpreter

from interpool.native import InterpreterManager
from interpool.native._native import Channel, Inbox

if TYPE_CHECKING:
    from interpool.native._native import Reply, Request

LOAD = otf.load()


class Loop:
    """Stands for the event loop: opens channels, and collects what they bring."""

    def __init__(self, manager: InterpreterManager) -> None:
        self.inbox = Inbox()
        self.brought: dict[int, list[Reply | None]] = defaultdict(list)
        self._manager = manager
        self._stack = ExitStack()

    def open(self, affinity: str = "asked", *, worker: str = "w", pinned: bool = False) -> Channel:
        channel = Channel(self.inbox, LOAD)
        done = os.eventfd(0)
        connection = self._manager.serve(
            channel,
            module="serving_guest",
            function="torchserve",
            worker=worker,
            affinity=affinity,
            done_fd=done,
            pinned=pinned,
        )

        def close() -> None:
            channel.close()
            assert connection.join(60)
            os.eventfd_read(done)
            os.close(done)

        self._stack.callback(close)
        assert self.next(channel) == (200, worker.encode(), [])
        return channel

    def next(self, channel: Channel) -> Reply | None:
        """The next thing that a channel brings."""
        while not self.brought[channel.number]:
            self.wait()
        return self.brought[channel.number].pop(0)

    def wait(self, timeout: float = 60) -> None:
        ready, _, _ = select.select([self.inbox], [], [], timeout)
        assert ready, "nothing came"
        for number, reply in self.inbox.take():
            self.brought[number].append(reply)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def loop(manager: InterpreterManager) -> Iterator[Loop]:
    made = Loop(manager)
    yield made
    made.close()


def request(name: bytes, body: bytes = b"x", headers: dict[bytes, bytes] | None = None) -> Request:
    return name, headers or {}, [(b"body", b"", body)]


def bodies(reply: Reply | None) -> dict[bytes, bytes]:
    """What torchserve's service said each request of a batch held."""
    assert reply is not None
    assert reply[:2] == (200, b"said")
    return {name: bytes.fromhex(json.loads(body)[1][0][2]) for name, _, _, _, body in reply[2]}


def test_torchserves_own_code_reads_what_is_asked_and_writes_what_is_answered(loop: Loop) -> None:
    channel, choice = loop.open(), random.Random(7)

    def word() -> bytes:
        return "".join(choice.choices(string.ascii_letters, k=choice.randrange(1, 9))).encode()

    for size in (1, 2, 3, 7, 1):
        batch: list[Request] = [
            (
                b"id-%d" % number,
                {word(): word() for _ in range(choice.randrange(5))},
                [
                    (word(), b"a/b", choice.randbytes(choice.choice((0, 1, 9, 70_000))))
                    for _ in range(choice.randrange(4))
                ],
            )
            for number in range(size)
        ]
        channel.predict(batch)
        reply = loop.next(channel)
        assert reply is not None
        assert [name for name, *_ in reply[2]] == [name for name, _, _ in batch]
        for number, (_, kind, status, headers, body) in enumerate(reply[2]):
            _, asked_headers, parameters = batch[number]
            assert (kind, status, headers) == (b"", 200, [(b"x-number", b"%d" % number)])
            assert json.loads(body) == [
                {name.decode(): value.decode() for name, value in asked_headers.items()},
                [[name.decode(), kind.decode(), value.hex()] for name, kind, value in parameters],
            ]


def test_headers_are_sent_in_utf_8(loop: Loop) -> None:
    channel = loop.open()
    channel.predict([request(b"1", headers={b"x": "Zürich".encode("latin-1")})])
    reply = loop.next(channel)
    assert reply is not None
    assert json.loads(reply[2][0][4])[0] == {"x": "Zürich"}


def test_parts_of_an_answer_come_before_its_end_and_in_order(loop: Loop) -> None:
    channel = loop.open()
    for _ in range(20):
        channel.predict([request(b"stream")])
        first, second = loop.next(channel), loop.next(channel)
        assert first is not None
        assert second is not None
        assert [first[2][0][4], second[2][0][4]] == [b"one", b"two"]
        assert bodies(loop.next(channel)) == {b"stream": b"x"}


def test_a_worker_that_ends_answers_first(loop: Loop) -> None:
    channel = loop.open()
    channel.predict([request(b"end")])
    assert bodies(loop.next(channel)) == {b"end": b"x"}
    assert loop.next(channel) is None
    assert channel.is_closed


def test_a_channel_that_is_closed_is_not_answered_any_more(loop: Loop) -> None:
    channel = loop.open()
    channel.predict([request(b"wait")])
    channel.close()
    assert loop.next(channel) is None
    channel.predict([request(b"1")])
    other = loop.open()
    other.predict([request(b"1")])
    assert bodies(loop.next(other)) == {b"1": b"x"}
    assert loop.brought[channel.number] == []


def test_a_request_that_finds_no_interpreter_waits_for_one(loop: Loop, manager: InterpreterManager) -> None:
    channels = [loop.open(worker=str(number)) for number in range(6)]
    with every_interpreter(manager):
        for number, channel in enumerate(channels):
            channel.predict([request(b"id", b"%d" % number)])
        with pytest.raises(AssertionError, match="nothing came"):
            loop.wait(0.2)
        assert sum(model["waiting"] for model in manager.stats()["models"].values()) == len(channels)
    for number, channel in enumerate(channels):
        assert bodies(loop.next(channel)) == {b"id": b"%d" % number}


def test_one_that_is_closed_while_it_waits_takes_no_interpreter(
    loop: Loop, manager: InterpreterManager
) -> None:
    channels = [loop.open() for _ in range(3)]
    with every_interpreter(manager):
        for channel in channels:
            channel.predict([request(b"1")])
            channel.close()
        for channel in channels:
            assert loop.next(channel) is None
    with every_interpreter(manager):
        pass


@pytest.mark.parametrize("pinned", [False, True], ids=["shared", "pinned"])
def test_many_channels_on_few_interpreters_each_get_their_own_answers(loop: Loop, pinned: bool) -> None:
    channels = [
        loop.open(f"model-{number % 5}", worker=str(number), pinned=pinned and number % 2 == 0)
        for number in range(30)
    ]
    sent = dict.fromkeys((channel.number for channel in channels), 0)
    names = {channel.number: channel for channel in channels}

    def ask(channel: Channel) -> None:
        sent[channel.number] += 1
        mark = b"%d/%d" % (channel.number, sent[channel.number])
        channel.predict([request(b"id-%d" % place, mark + b"/%d" % place) for place in range(3)])

    for channel in channels:
        ask(channel)
    left = len(channels)
    while left:
        loop.wait()
        for number, replies in loop.brought.items():
            for reply in replies:
                mark = b"%d/%d" % (number, sent[number])
                assert bodies(reply) == {b"id-%d" % n: mark + b"/%d" % n for n in range(3)}
                if sent[number] < 10:
                    ask(names[number])
                else:
                    left -= 1
            replies.clear()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([("id", {}, [])], "bytes, not str"),
        ([(b"id", {b"a": 1}, [])], "bytes, not int"),
        ([(b"id", {}, [(b"a", b"", "text")])], "bytes, not str"),
    ],
)
def test_what_is_not_bytes_is_refused_and_nothing_is_asked(loop: Loop, asked: Any, said: str) -> None:
    channel = loop.open()
    with pytest.raises(TypeError, match=said):
        channel.predict(asked)
    channel.predict([request(b"1")])
    assert bodies(loop.next(channel)) == {b"1": b"x"}


def test_a_channel_is_found_by_its_number_as_long_as_there_is_one() -> None:
    channel = Channel(Inbox(), LOAD)
    number = channel.number
    assert Channel.find(number) is channel
    assert channel.load_command == LOAD
    channel.close()
    del channel
    assert Channel.find(number) is None
