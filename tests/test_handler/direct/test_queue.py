"""A model's queue: what makes a batch, and who is refused."""

from __future__ import annotations

import asyncio

import pytest
from fake_channels import FakeChannel, FakeChannels, until

from interpool.handler.direct import job as job_module
from interpool.handler.direct.job import Answer, Job, Refusal
from interpool.handler.direct.models import Models, ModelVersion
from interpool.handler.direct.queue import ModelQueue, QueueSettings


async def _connected(queue: ModelQueue) -> FakeChannel:
    channels = FakeChannels()
    worker = queue.connection(channels, b"L", lambda _: None)
    worker.hear((200, b"loaded", []))
    await worker.loaded(1)
    queue.add(worker)
    queue.wanted += 1
    return channels.opened[0]


def _job(number: int) -> Job:
    return Job(b"%02d" % number, {}, [], asyncio.get_running_loop().time())


async def _busy() -> tuple[ModelQueue, FakeChannel, list[Job]]:
    """A queue, its worker, and three jobs: the worker has the first, and the others wait."""
    queue = ModelQueue(QueueSettings())
    worker = await _connected(queue)
    jobs = [_job(number) for number in range(3)]
    for job in jobs:
        queue.put(job)
    return queue, worker, jobs


def test_requests_that_wait_are_one_batch_and_each_gets_its_own_answer() -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings(batch_size=3, batch_delay_s=3600))
        worker = await _connected(queue)
        jobs = [_job(number) for number in range(7)]
        assert all(queue.put(job) for job in jobs)
        await until(lambda: worker.batches == [[b"00", b"01", b"02"]])
        worker.answer()
        await until(lambda: len(worker.batches) == 2)
        worker.answer()
        assert [(await job.answer()).body for job in jobs[:6]] == [b"%02d" % n for n in range(6)]
        assert len(queue) == 1  # waits for two others

    asyncio.run(work())


def test_a_worker_has_its_next_batch_before_its_answers_are_written() -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings())
        worker = await _connected(queue)
        first, second = _job(1), _job(2)
        seen: list[int] = []
        first.call_back(lambda _: seen.append(len(worker.batches)))
        assert queue.put(first)
        assert queue.put(second)
        await until(lambda: len(worker.batches) == 1)
        worker.answer()
        assert seen == [2]
        assert (await first.answer()).body == b"01"
        worker.answer()
        assert (await second.answer()).body == b"02"

    asyncio.run(work())


def test_a_batch_that_is_not_full_goes_when_its_time_has_come() -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings(batch_size=3, batch_delay_s=0.05))
        worker = await _connected(queue)
        queue.put(_job(1))
        assert worker.batches == []
        await until(lambda: worker.batches == [[b"01"]])

    asyncio.run(work())


def test_a_request_without_a_worker_or_room_is_refused() -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings(queue_size=2))
        assert not queue.put(_job(0))
        await _connected(queue)
        assert [queue.put(_job(number)) for number in range(5)] == [True, True, True, False, False]

    asyncio.run(work())


def test_a_request_in_another_event_loop_is_refused_as_no_answer_would_come() -> None:
    async def opened() -> ModelQueue:
        queue = ModelQueue(QueueSettings())
        await _connected(queue)
        return queue

    async def ask(queue: ModelQueue) -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            queue.put(_job(0))

    asyncio.run(ask(asyncio.run(opened())))


def test_a_worker_that_is_silent_for_too_long_fails_its_batch_and_ends() -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings(response_timeout_s=0.05))
        await _connected(queue)
        job = _job(1)
        queue.put(job)
        with pytest.raises(Refusal, match="Worker died"):
            await job.answer()
        await until(lambda: not queue.workers)

    asyncio.run(work())


def test_a_request_that_expires_in_the_queue_is_refused_and_reaches_no_worker() -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings(queue_size=1, client_timeout_s=0.05))
        worker = await _connected(queue)
        first, second, third = (_job(number) for number in range(3))
        assert queue.put(first)
        assert queue.put(second)
        for job in (first, second):
            with pytest.raises(Refusal, match=r"not answered in 0\.05 s") as refused:
                await job.answer()
            assert (refused.value.status, refused.value.kind) == (408, "RequestTimeoutException")
        assert len(queue) == 0
        assert queue.put(third)  # in the second one's place
        worker.answer()
        assert worker.batches == [[b"00"], [b"02"]]
        worker.answer()
        assert (await third.answer()).body == b"02"

    asyncio.run(work())


def test_a_request_that_expires_leaves_the_rest_of_its_batch_and_its_worker_as_they_are() -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings(batch_size=2, batch_delay_s=3600, client_timeout_s=0.05))
        worker = await _connected(queue)
        first, second = _job(1), _job(2)
        queue.put(first)
        queue.settings = QueueSettings(batch_size=2, batch_delay_s=3600)
        queue.put(second)
        assert worker.batches == [[b"01", b"02"]]
        with pytest.raises(Refusal, match="not answered"):
            await first.answer()
        worker.answer()
        assert (await second.answer()).body == b"02"
        await queue.drain()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("too large"), 413), (MemoryError(), 507)], ids=["size", "memory"]
)
def test_a_request_that_no_message_can_hold_is_refused_and_its_worker_goes_on(
    error: Exception, status: int
) -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings())
        worker = await _connected(queue)
        worker.refuses = error
        job = _job(1)
        queue.put(job)
        with pytest.raises(Refusal) as caught:
            await job.answer()
        assert caught.value.status == status
        worker.refuses = None
        other = _job(2)
        queue.put(other)
        await until(lambda: worker.batches)
        worker.answer()
        assert (await other.answer()).body == b"02"

    asyncio.run(work())


def test_a_worker_that_leaves_answers_first() -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings())
        worker = await _connected(queue)
        job = _job(1)
        queue.put(job)
        await until(lambda: worker.batches)
        for each in queue.workers:
            each.leave()
        worker.answer()
        assert (await job.answer()).body == b"01"
        await until(lambda: not queue.workers)

    asyncio.run(work())


def test_an_answer_that_comes_after_its_worker_was_closed_is_dropped_and_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings())
        worker = await _connected(queue)
        job = _job(1)
        queue.put(job)
        for each in list(queue.workers):
            each.close()
        worker.answer()
        with pytest.raises(Refusal, match="Worker died"):
            await job.answer()
        await until(lambda: not queue.workers)

    asyncio.run(work())
    assert caplog.text == ""


def test_a_queue_is_drained_when_its_last_request_is_answered_or_expires() -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings(batch_size=2, batch_delay_s=3600))
        await queue.drain()
        worker = await _connected(queue)
        await queue.drain()
        for number in range(3):
            queue.put(_job(number))
        drained = asyncio.create_task(queue.drain())
        worker.answer()
        await asyncio.sleep(0)
        assert not drained.done()  # the third one waits
        queue.settings = QueueSettings(batch_size=2, batch_delay_s=3600, client_timeout_s=0.05)
        queue.put(_job(3))
        assert worker.batches == [[b"00", b"01"], [b"02", b"03"]]
        worker.answer()
        await drained
        queue.put(_job(4))
        await queue.drain()  # it expires
        assert len(worker.batches) == 2

    asyncio.run(work())


def test_a_queue_is_drained_when_its_busy_worker_ends_or_a_batch_has_had_its_time() -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings())
        await _connected(queue)
        queue.put(_job(1))
        drained = asyncio.create_task(queue.drain())
        await asyncio.sleep(0)
        for worker in list(queue.workers):
            worker.close()
        await drained
        queue.put(_job(2))  # and no worker comes
        queue.settings = QueueSettings(response_timeout_s=0.05)
        await queue.drain()

    asyncio.run(work())


def test_a_queue_is_drained_for_as_long_as_its_workers_answer_one_request_after_another() -> None:
    async def work() -> None:
        queue = ModelQueue(QueueSettings())
        worker = await _connected(queue)
        jobs = [_job(number) for number in range(2)]
        for job in jobs:
            queue.put(job)
        queue.settings = QueueSettings(response_timeout_s=0.01)
        drained = asyncio.create_task(queue.drain())
        for job in jobs:
            await asyncio.sleep(0.1)
            assert not drained.done()
            worker.answer()
            await job.answer()
        await drained

    asyncio.run(work())


def test_a_queue_does_not_wait_for_the_answers_of_requests_that_are_given_up() -> None:
    async def work() -> None:
        queue, worker, (_, waiting, kept) = await _busy()
        queue.forget(waiting)
        drained = asyncio.create_task(queue.drain())
        worker.answer()
        assert worker.batches == [[b"00"], [b"02"]]
        await asyncio.sleep(0)
        assert not drained.done()
        queue.forget(kept)
        await asyncio.wait_for(drained, 10)
        worker.answer()
        assert len(queue.workers) == 1

    asyncio.run(work())


def test_a_request_whose_client_leaves_reaches_no_worker_unless_one_has_it() -> None:
    async def work() -> None:
        queue, worker, (running, waiting, kept) = await _busy()
        queue.leave(running)
        queue.leave(waiting)
        with pytest.raises(Refusal, match="client has left"):
            await waiting.answer()
        worker.answer()
        assert (await running.answer()).body == b"00"
        assert worker.batches == [[b"00"], [b"02"]]
        queue.leave(kept)
        worker.answer()
        assert (await kept.answer()).body == b"02"

    asyncio.run(work())


def test_a_stream_ends_if_its_client_leaves_too_much_of_it_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "_MOST_UNREAD_BYTES", 100)
    part = Answer(200, b"", (), b"x" * 30, more=True)

    async def work() -> None:
        read = _job(0)
        for _ in range(100):
            read.deliver(part)
            assert await read.answer() is part
        unread = _job(1)
        for _ in range(3):
            unread.deliver(part)
        assert await unread.answer() is part
        for _ in range(2):
            unread.deliver(part)
        with pytest.raises(Refusal, match="too slowly"):
            await unread.answer()
        assert unread.is_answered

    asyncio.run(work())


def test_the_default_is_the_first_version_until_another_is_chosen() -> None:
    async def work() -> None:
        models = Models()
        first, second = (ModelVersion("m", version, ModelQueue(QueueSettings())) for version in ("1", "2"))
        models.add(first)
        models.add(second)
        assert models.find("m", None) is first
        models.set_default("m", "2")
        assert models.find("m", None) is second
        models.remove(second)
        with pytest.raises(Refusal, match="does not exist"):
            models.find("m", None)
        models.remove(first)
        with pytest.raises(Refusal, match="Model not found"):
            models.find("m", None)

    asyncio.run(work())
