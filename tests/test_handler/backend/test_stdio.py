"""What a call prints goes to its own worker, also if other code runs in the interpreter."""

from __future__ import annotations

import asyncio
import codecs
import contextvars
import gc
import io
import logging
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from interpool.handler.backend import stdio
from interpool.handler.backend.wire import FramePeeker, FrameReader, ReplyWriter, TruncatedFrameError


@contextmanager
def _installed() -> Iterator[None]:
    """Inside the test itself: pytest replaces the streams again after a fixture's set-up."""
    before = sys.stdout, sys.stderr
    stdio.install()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Worker:
    """A worker's two log files."""

    def __init__(self, directory: Path) -> None:
        self._files = [(directory / name).open("w+b") for name in ("out", "err")]
        self.fds = tuple(file.fileno() for file in self._files)

    def close(self) -> None:
        for file in self._files:
            file.close()

    @property
    def out(self) -> str:
        return os.pread(self.fds[0], 1 << 20, 0).decode()

    @property
    def err(self) -> str:
        return os.pread(self.fds[1], 1 << 20, 0).decode()


@contextmanager
def _workers(tmp_path: Path, count: int) -> Iterator[list[_Worker]]:
    workers = []
    for index in range(count):
        directory = tmp_path / str(index)
        directory.mkdir()
        workers.append(_Worker(directory))
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()


def test_each_call_prints_to_its_own_worker(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    barrier = threading.Barrier(4)

    def call(worker: _Worker, name: str) -> None:
        with stdio.to_worker(*worker.fds):
            barrier.wait()
            for line in range(200):
                print(name, line)
                print(name, line, file=sys.stderr)

    with _installed(), _workers(tmp_path, 4) as workers, ThreadPoolExecutor(4) as threads:
        jobs = [threads.submit(call, w, f"w{i}") for i, w in enumerate(workers)]
        for job in jobs:
            job.result()
        for index, worker in enumerate(workers):
            expected = "".join(f"w{index} {line}\n" for line in range(200))
            assert worker.out == expected
            assert worker.err == expected
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_lines_reach_the_worker_whole_and_the_rest_at_the_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with _installed(), _workers(tmp_path, 1) as (worker,):
        with stdio.to_worker(*worker.fds):
            print("half", end="")
            assert worker.out == ""
            print(" and half")
            assert worker.out == "half and half\n"
            print("rest", end="")
        assert worker.out == "half and half\nrest"


def test_log_records_and_raw_bytes_follow(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("test_stdio")
    with _installed(), _workers(tmp_path, 1) as (worker,):
        handler = logging.StreamHandler(sys.stdout)
        logger.addHandler(handler)
        try:
            with stdio.to_worker(*worker.fds):
                logger.warning("a record")
                sys.stdout.buffer.write(b"bytes\n")
                assert sys.stdout.fileno() == worker.fds[0]
            assert worker.out == "a record\nbytes\n"
        finally:
            logger.removeHandler(handler)


def test_a_model_gets_no_descriptor_while_it_is_loaded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: list[BaseException] = []

    def ask() -> None:
        try:
            sys.stderr.fileno()
        except io.UnsupportedOperation as error:
            asked.append(error)

    with _installed(), _workers(tmp_path, 1) as (worker,):
        with stdio.to_worker(*worker.fds, "mine"):
            with stdio.loading():
                for stream in (sys.stdout, sys.stderr, sys.stdout.buffer):
                    with pytest.raises(io.UnsupportedOperation, match="fileno"):
                        stream.fileno()
                thread = threading.Thread(target=ask)
                thread.start()
                thread.join()
                print("loading")
            assert (sys.stdout.fileno(), sys.stderr.fileno()) == worker.fds
        assert (worker.out, len(asked)) == ("loading\n", 1)


def _close() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.close()
        stream.buffer.close()


def _wrap() -> None:
    for stream in (sys.stdout, sys.stderr):
        io.TextIOWrapper(stream.buffer, encoding="utf-8").write("wrapped\n")
    gc.collect()


def _detach() -> None:
    for stream in (sys.stdout, sys.stderr):
        codecs.getwriter("utf-8")(stream.detach()).write("wrapped\n")
    gc.collect()


def _reconfigure() -> None:
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="latin-1", errors="strict", newline="\r\n", write_through=False)


@pytest.mark.parametrize(
    ("end", "says"),
    [(_close, ""), (_wrap, "wrapped\n"), (_detach, "wrapped\n"), (_reconfigure, "")],
)
def test_a_model_ends_or_changes_the_streams_only_for_itself(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], end: Callable[[], None], says: str
) -> None:
    with _installed(), _workers(tmp_path, 2) as (first, second):
        with stdio.to_worker(*first.fds, "first"):
            print("before", end="")
            end()
        with stdio.to_worker(*second.fds, "second"):
            print("→ out")
            print("→ err", file=sys.stderr)
        assert (first.out, first.err) == ("before" + says, says)
        assert (second.out, second.err) == ("→ out\n", "→ err\n")


def test_asyncio_follows_its_call_and_threads_without_a_call_print_for_the_host(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def task() -> None:
        print("task")
        await asyncio.to_thread(print, "its thread")

    with _installed(), _workers(tmp_path, 1) as (worker,):
        with stdio.to_worker(*worker.fds):
            asyncio.run(task())
            other = threading.Thread(target=print, args=("other thread",))
            other.start()
            other.join()
        print("no call")
        assert worker.out == "task\nits thread\n"
    assert capfd.readouterr().out == "other thread\nno call\n"


def test_a_models_threads_print_for_its_running_call(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wishes: queue.Queue[str] = queue.Queue()

    def speaker() -> None:
        while word := wishes.get():
            ThreadPoolExecutor(1).submit(print, word).result()
            wishes.task_done()
        wishes.task_done()

    def say(word: str) -> None:
        wishes.put(word)
        wishes.join()

    with _installed(), _workers(tmp_path, 3) as (first, second, other):
        with stdio.to_worker(*first.fds, "mine"):
            thread = threading.Thread(target=speaker)
            thread.start()
            say("one")
        say("between calls")
        with stdio.to_worker(*other.fds, "another"):
            say("beside another's")
            print("another's")
        with stdio.to_worker(*second.fds, "mine"):
            say("two")
            say("")
        thread.join()
        assert (first.out, second.out, other.out) == ("one\n", "two\n", "another's\n")
    assert capfd.readouterr().out == "between calls\nbeside another's\n"


def test_nothing_is_written_for_a_call_that_has_ended(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    go = threading.Event()

    def late() -> None:
        go.wait(60)
        print("late")

    with _installed(), _workers(tmp_path, 1) as (worker,):
        with stdio.to_worker(*worker.fds, "mine"):
            context = contextvars.copy_context()
        other = threading.Thread(target=context.run, args=(late,))
        other.start()
        go.set()
        other.join()
        assert worker.out == ""
    assert capfd.readouterr().out == "late\n"


def test_threads_of_a_call_mix_whole_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with _installed(), _workers(tmp_path, 1) as (worker,):
        with stdio.to_worker(*worker.fds, "mine"):
            threads = [
                threading.Thread(target=lambda n=n: [sys.stdout.write(f"{n} says {i}\n") for i in range(200)])
                for n in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        said = [f"{n} says {i}" for n in range(4) for i in range(200)]
        assert sorted(worker.out.splitlines()) == sorted(said)


def test_a_pipe_without_a_reader_fails_no_call() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        with _installed(), stdio.to_worker(write_end, write_end):
            print("into the void")
    finally:
        os.close(write_end)


def test_a_frame_is_read_like_a_socket() -> None:
    reader = FrameReader(b"abcdef")
    assert bytes(reader.recv(2)) == b"ab"
    assert bytes(reader.recv(4)) == b"cdef"
    with pytest.raises(TruncatedFrameError, match="7 or more"):
        reader.recv(1)


def test_a_frame_is_peeked_at_in_a_connection_that_goes_on_to_block() -> None:
    """It ignores the timeout that a model has made every new socket's: others read the connection, too."""
    near, far = socket.socketpair()
    before = socket.getdefaulttimeout()
    with near, far:
        far.sendall(b"abcdef")
        peeker = FramePeeker(near.fileno())
        socket.setdefaulttimeout(5)
        try:
            assert (peeker.recv(2), peeker.recv(4)) == (b"ab", b"cdef")
        finally:
            socket.setdefaulttimeout(before)
        assert os.get_blocking(near.fileno())
        assert near.recv(6) == b"abcdef"


def test_a_call_does_not_end_while_a_thread_of_its_model_sends_a_part() -> None:
    running, order = {"a"}, []
    checked, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        checked.set()
        go_on.wait()

    writer = ReplyWriter(lambda _: order.append(f"sent while {running} runs"), wait, running.__contains__)

    def end() -> None:
        with writer.sending:
            running.clear()
        order.append("ended")

    reply = b"".join((bytes(4), bytes(4), (1).to_bytes(4, "big"), b"a"))
    threads = [threading.Thread(target=writer.sendall, args=(reply,)), threading.Thread(target=end)]
    threads[0].start()
    checked.wait()
    threads[1].start()
    threads[1].join(0.2)
    go_on.set()
    for thread in threads:
        thread.join()
    assert order == ["sent while {'a'} runs", "ended"]
    with pytest.raises(BrokenPipeError, match="has its answer already"):
        writer.sendall(reply)
