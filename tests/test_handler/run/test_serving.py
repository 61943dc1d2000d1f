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
from interpool.handler.host import control
from interpool.handler.run.archives import Options
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
TWICE = """
async def once():
    said = [await status("/v2/health/ready")]
    async with serving.open():
        said += [await status("/v2/health/ready"), (await ask(app, "waits", "")).decode()]
    return [*said, await status("/v2/health/ready"), await status("/predictions/waits")]


print([asyncio.run(once()) for _ in range(2)], flush=True)
os._exit(0)
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
        print([each["state"] for each in workers], await ask(app, "waits", ""), flush=True)


asyncio.run(work())
os._exit(0)
"""


def _said(program: str, tmp_path: Path) -> str:
    """The last line of a program with a model that waits until the file exists which a request names."""
    model = extracted(tmp_path / "waits", handler="handler.py")
    (model / "handler.py").write_text(HANDLER)
    environment = {
        **os.environ,
        "INTERPOOL_INTERPRETERS": "2",
        "INTERPOOL_ORDINARY_ARCHIVES": "pool",
        "INTERPOOL_RUNTIME_DIR": str(tmp_path / "run"),
    }
    command = [sys.executable, "-c", SERVING + program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_models_can_be_opened_again_in_another_event_loop_and_are_ready_while_they_are_open(
    tmp_path: Path,
) -> None:
    assert _said(TWICE, tmp_path) == str([[503, 200, "", 503, 404]] * 2)


def test_a_replacement_that_is_cancelled_leaves_no_worker_of_the_model_before(
    tmp_path: Path,
) -> None:
    assert _said(CANCELLED, tmp_path) == "['connected'] b''"


@pytest.mark.parametrize("size", [-1, 0, "many"])
def test_a_wrong_size_of_requests_is_refused(size: Any) -> None:
    with pytest.raises(SettingsError, match=f"`request_bytes` cannot be {size!r}"):
        interpool.asgi.app({}, request_bytes=size)
