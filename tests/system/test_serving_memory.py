"""A model that asks for memory without end, in a control group with a limit, beside innocent ones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from clients import Load
from local_server import torchserve
from system.conftest import Mar, Pack
from waiting import wait_for

from interpool.handler.host.memory_brake import LONGEST_S

pytestmark = pytest.mark.long

LIMIT = 600 << 20  # more than a pool needs for two small models
GROUPS = Path("/sys/fs/cgroup")


def _own_groups() -> Iterator[tuple[Path, str]]:
    """This process's groups, by version, each with the name of its limit's file."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield GROUPS / "memory" / name.removeprefix("/"), "memory.limit_in_bytes"
        elif not controllers:
            yield GROUPS / name.removeprefix("/"), "memory.max"


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with a limit of memory, in which nothing is yet."""
    for above, limit in _own_groups():
        made = above / f"interpool-test-{os.getpid()}"
        with suppress(OSError):
            made.mkdir()
            try:
                (made / limit).write_text(str(LIMIT))
            except OSError:
                made.rmdir()
                raise
            try:
                yield made
            finally:
                _remove(made)
            return
    pytest.skip("no control group with a limit of memory can be made here")


def _remove(group: Path) -> None:
    def is_gone() -> bool:
        with suppress(OSError):
            group.rmdir()
        return not group.exists()

    wait_for(is_gone, f"{group} to be empty")


def test_the_kernel_does_not_end_the_pool_for_a_model_that_asks_for_memory_without_end(
    mar: Mar, packed: Pack, group: Path
) -> None:
    with torchserve() as server:
        for name in ("one", "two"):
            assert server.register(mar(server, name, "inside")).status == 200
        assert server.register(mar(server, "hungry", packed("hungry", "hungry"))).status == 200
        (host,) = server.hosts()
        (group / "cgroup.procs").write_text(str(host.pid))
        time.sleep(3 * LONGEST_S)  # it was in no such group when it last looked how soon it must look again
        names = ["one", "two"]
        with Load(lambda: [server.predict(name, {"sleep": 0.01}).json["model"] for name in names]) as client:
            for way in ("bytes", "tensors"):
                answer = server.predict("hungry", {"way": way})
                assert answer.status in (503, 507), answer.text
                enough = client.answers.total() + 10
                wait_for(lambda enough=enough: client.answers.total() > enough, "the innocent to be answered")
                assert server.predict("hungry", {}).text == "well"
        assert (client.answers.keys(), client.failures) == ({repr(names)}, [])
        assert [each.pid for each in server.hosts()] == [host.pid]
        assert "memory is short" in server.host_log()
