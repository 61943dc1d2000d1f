"""The pool of a process that serves without TorchServe; what it answers is tested in tests/system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from extracted import extracted

import interpool.asgi
from interpool.archiver_ext.packing.pack import pack
from interpool.handler.errors import SettingsError

PROGRAM = """
import os
from pathlib import Path
from interpool.handler.config import HostSettings
from interpool.handler.frontend import shim
from interpool.handler.run.serving import HostThread
from interpool.native import _native

place = Path(shim.runtime_base(), shim.instance_key(os.getpid(), shim.DEFAULT_POOL))
shim.make_private(str(place))
(place / "control").mkdir()  # where the socket is to be
try:
    HostThread(HostSettings.of_environment(), lambda: {"address": "", "models": []}).start()
except OSError as error:
    print(error.strerror, [pool.is_closed for pool in _native.pools()], flush=True)
os._exit(0)
"""


def test_a_host_that_cannot_listen_leaves_no_pool_open(tmp_path: Path) -> None:
    environment = {**os.environ, "INTERPOOL_RUNTIME_DIR": str(tmp_path / "run")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Is a directory [True]\n"


HANDLER = """
import os, time


def handle(data, context):
    while any(row["body"] and not os.path.exists(row["body"]) for row in data or ()):
        time.sleep(0.01)
    return [row["body"] for row in data] if data else None
"""
SERVING = """
import asyncio, json, os
from pathlib import Path
from interpool.handler.errors import ServeError
from interpool.handler.host import control
from interpool.handler.run.options import Options
from interpool.handler.run.asking import ask
from interpool.handler.run.serving import Serving, application

ARCHIVE = Path("waits").resolve()
serving = Serving({"waits": ARCHIVE}, Options(workers=1))
app = application(serving)


async def status(path):
    sent = []

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": path}
    await app({**scope, "query_string": b"", "headers": []}, receive, send)
    return sent[0]["status"]

"""
CANCELLED = """
async def work():
    async with serving.open():
        until = Path("until").resolve()
        before = serving._served["waits"]
        asked = asyncio.create_task(ask(app, "waits", str(until)))
        adding = asyncio.create_task(serving.add("waits", ARCHIVE))
        while serving._served["waits"] is before:
            await asyncio.sleep(0.01)
        adding.cancel()
        until.touch()
        await asyncio.gather(adding, asked, return_exceptions=True)
        for _ in range(100):
            workers = json.loads(await asyncio.to_thread(control.ask, Path(serving._runtime_dir)))["workers"]
            if len(workers) == 1:
                break
            await asyncio.sleep(0.1)
        answer = asked.result().decode() == str(until)
        print([each["state"] for each in workers], answer, await ask(app, "waits", ""), flush=True)


asyncio.run(work())
os._exit(0)
"""
FAILED = """
import shutil


async def work():
    for name, line in (("broken", "raise RuntimeError"), ("slow", "import time; time.sleep(60)")):
        shutil.copytree(ARCHIVE, name)
        Path(name, "handler.py").write_text(line)
    models = {name: Path(name).resolve() for name in ("slow", "broken")}
    try:
        async with Serving(models, Options(workers=1)).open():
            pass
    except ServeError as error:
        print(asyncio.all_tasks() - {asyncio.current_task()}, str(error).partition(":")[0], flush=True)


asyncio.run(work())
os._exit(0)
"""
STARTING = """
import threading
from interpool.handler.host.interpreter_pool import Pool

Pool._start = lambda self: threading.Event().wait()  # no interpreter is ever ready
serving = Serving({"waits": ARCHIVE}, Options(workers=1), ends_process=True)


async def work():
    opening = asyncio.create_task(serving.open().__aenter__())
    while not hasattr(serving, "_runtime_dir"):
        await asyncio.sleep(0.01)
    opening.cancel()
    await asyncio.wait([opening])
    print(opening.cancelled(), os.listdir(Path(os.environ["INTERPOOL_RUNTIME_DIR"])), flush=True)


asyncio.run(work())
os._exit(0)
"""
ENDED = """
async def work():
    coming, sent = asyncio.Queue(), asyncio.Queue()
    living = asyncio.create_task(app({"type": "lifespan"}, coming.get, sent.put))
    await coming.put({"type": "lifespan.startup"})
    assert (await sent.get())["type"] == "lifespan.startup.complete"
    until = Path("until").resolve()
    asked = [asyncio.create_task(ask(app, "waits", str(until))) for _ in range(3)]  # two of them wait
    while await status("/v2/health/ready") == 200:
        if len(serving._served["waits"].model.queue) == 2:
            await coming.put({"type": "lifespan.shutdown"})
        await asyncio.sleep(0.01)
    refused = await status("/predictions/waits")
    until.touch()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    await living
    print(refused, answers == [str(until).encode()] * 3 or answers, sent.get_nowait()["type"], flush=True)


asyncio.run(work())
os._exit(0)
"""
AGAIN = """
import threading
import time


def kept():
    links = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    files = [os.readlink(each) for each in links if os.path.lexists(each)]
    files = [each for each in files if not each.startswith("anon")]
    return [*files, *map(repr, threading.enumerate())]


async def once():
    said = [await status("/v2/health/ready")]
    async with serving.open():
        try:
            async with Serving({"other": ARCHIVE}, Options(workers=1)).open():
                pass
        except Exception as error:
            said.append(str(error).partition(",")[0])
        said += [await status("/v2/health/ready"), (await ask(app, "waits", "")).decode()]
    print([*said, await status("/v2/health/ready"), await status("/predictions/waits")])


asyncio.run(once())
before = set(kept())
asyncio.run(once())
patience = time.monotonic() + 30
while set(kept()) - before and time.monotonic() < patience:
    time.sleep(0.05)  # a thread that unloads models may still be about to end
print(sorted(set(kept()) - before), flush=True)
os._exit(0)
"""


HOST_ENDS = """
from interpool.handler.host.pool_host import PoolHost

hosts = []
run = PoolHost.run
PoolHost.run = lambda host: (hosts.append(host), run(host))[1]


async def work():
    async with serving.open():
        said = [await status("/v2/health/live"), await ask(app, "waits", "")]
        hosts[0].leave("its GPU is lost")
        while await status("/v2/health/live") == 200:
            await asyncio.sleep(0.01)
        print(*said, await status("/v2/health/live"), await status("/v2/health/ready"), flush=True)


asyncio.run(work())
os._exit(0)
"""
LIMITED = """
import resource


async def work():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most // 2, most))
    async with serving.open():
        print(resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most), flush=True)


asyncio.run(work())
os._exit(0)
"""
RUN = """
import sys
from types import SimpleNamespace
from interpool.handler.cli import main
from interpool.handler.host.pool_host import PoolHost
from interpool.handler.run import command

hosts = []
run = PoolHost.run
PoolHost.run = lambda host: (hosts.append(host), run(host))[1]
command.logger = SimpleNamespace(info=lambda *listens: hosts[0].leave("its GPU is lost"))
main(["run", "waits", "--port=0"])
"""
LABELLED = """
from interpool.handler.host.prometheus import PoolCollector
from interpool.handler.host.status import ask_hosts


async def work():
    labels = []
    for address in ("", "127.0.0.1:9000"):
        serving.address = address
        async with serving.open():
            families = await asyncio.to_thread(lambda: list(PoolCollector(ask_hosts).collect()))
        found = [each.labels for family in families for each in family.samples]
        labels += {each["server"] for each in found if "pool" in each}
    print(labels == [f"pid {os.getpid()}", "127.0.0.1:9000"] or labels, flush=True)


asyncio.run(work())
os._exit(0)
"""
MANY = """
import torch


class Many(torch.nn.Module):
    def forward(self, x):
        return x.repeat(1_000_000)


def many():
    return Many()
"""
LARGE = """
async def work():
    async with serving.open():
        await serving.add("many", Path("many.ptpkg").resolve())
        answer = await ask(app, "many", [1.5, 2.5])
        print(len(answer), answer[-2:], flush=True)


asyncio.run(work())
os._exit(0)
"""


def _run(program: str, tmp_path: Path, interpreters: int = 2) -> subprocess.CompletedProcess[str]:
    """Run a program beside a model that waits until the file exists which a request names."""
    model = extracted(tmp_path / "waits", handler="handler.py")
    (model / "handler.py").write_text(HANDLER)
    environment = {
        **os.environ,
        "INTERPOOL_INTERPRETERS": str(interpreters),
        "INTERPOOL_ORDINARY_ARCHIVES": "pool",
        "INTERPOOL_RUNTIME_DIR": str(tmp_path / "run"),
    }
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)


def _said(program: str, tmp_path: Path, interpreters: int = 2) -> list[str]:
    """What a program prints that serves this model."""
    done = _run(SERVING + program, tmp_path, interpreters)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_start_that_is_cancelled_waits_for_no_interpreter_if_the_process_ends(tmp_path: Path) -> None:
    assert _said(STARTING, tmp_path)[-1] == "True []"


def test_a_replacement_that_is_cancelled_ends_no_request_and_leaves_no_worker_of_the_model_before(
    tmp_path: Path,
) -> None:
    # A further one than a trial needs: a request holds it.
    assert _said(CANCELLED, tmp_path, interpreters=3)[-1] == "['connected'] True b''"


def test_without_torchserve_an_answer_may_be_larger_than_torchserve_takes(tmp_path: Path) -> None:
    (tmp_path / "many_model.py").write_text(MANY)
    pack("many_model:many", tmp_path / "many.ptpkg", root=tmp_path)
    assert _said(LARGE, tmp_path)[-1] == "2000000 [1.5, 2.5]"


def test_workers_may_have_as_many_descriptors_as_the_process_may(tmp_path: Path) -> None:
    assert _said(LIMITED, tmp_path)[-1] == "True"


def test_metrics_are_labelled_by_the_address_or_else_by_the_process(tmp_path: Path) -> None:
    assert _said(LABELLED, tmp_path)[-1] == "True"


def test_a_model_that_cannot_be_loaded_ends_the_loads_of_the_others(tmp_path: Path) -> None:
    assert _said(FAILED, tmp_path)[-1] == "set() broken cannot be served"


def test_an_application_that_is_shut_down_answers_what_it_was_asked_and_refuses_all_else(
    tmp_path: Path,
) -> None:
    assert _said(ENDED, tmp_path)[-1] == "503 True lifespan.shutdown.complete"


def test_models_can_be_opened_again_in_another_event_loop_beside_no_others_and_leave_nothing(
    tmp_path: Path,
) -> None:
    """They are ready while they are open, and a second application in the process is refused meanwhile."""
    open_once = [503, "this process serves archives already", 200, "", 503, 503]
    assert _said(AGAIN, tmp_path)[-3:] == [str(open_once)] * 2 + ["[]"]


@pytest.mark.parametrize("size", [-1, 0, "many"])
def test_a_wrong_size_of_requests_is_refused(size: Any) -> None:
    with pytest.raises(SettingsError, match=f"`request_bytes` cannot be {size!r}"):
        interpool.asgi.app({}, request_bytes=size)


def test_an_application_whose_host_has_ended_is_not_alive(tmp_path: Path) -> None:
    assert _said(HOST_ENDS, tmp_path)[-1] == "200 b'' 503 503"


def test_run_ends_with_its_host_and_says_why(tmp_path: Path) -> None:
    done = _run(RUN, tmp_path)
    assert done.returncode == 5, done.stderr
    assert "the pool's host has ended, and no model answers any more: its GPU is lost" in done.stderr
