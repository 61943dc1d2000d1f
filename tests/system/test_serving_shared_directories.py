"""Servers of containers that share /tmp leave each other's files alone."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess

import psutil
from local_server import INTERPOOL, TorchServe, torchserve
from pid_namespaces import in_another_pid_namespace
from system.conftest import Mar
from waiting import wait_for

# What a server's start, and a host's, removes.
CLEAN = """
import sys
from pathlib import Path
from interpool.handler.frontend.leftovers import remove_leftovers
from interpool.handler.host.runtime_directory import remove_stale
for path in remove_leftovers(Path(sys.argv[1])):
    print(path)
remove_stale(Path(sys.argv[2]))
"""


def _clean(server: TorchServe) -> str:
    return in_another_pid_namespace(CLEAN, server.tmp, server.runtime)


def _is_served(server: TorchServe) -> bool:
    return server.predict("inside", {}).status == 200


def test_a_server_goes_on_when_one_of_another_container_starts(mar: Mar) -> None:
    with torchserve() as server:
        archive = mar(server, "inside", "inside")
        assert server.register(archive, initial_workers=0).status == 200
        assert _clean(server) == ""  # no worker holds what was extracted: the frontend does
        assert server.scale("inside", 2).status == 200
        assert _clean(server) == ""
        assert _is_served(server)
        server.kill_host()
        assert _clean(server) == ""  # its runtime directory has no host
        wait_for(lambda: _is_served(server), "the next host", pause=0.1)
        while left := server.processes():  # one of them may just have started another
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            for process in left:
                process.wait(60)
        assert len(_clean(server).splitlines()) == 1
        assert not list((server.tmp / "models").iterdir())
        assert not list(server.tmp.glob("interpool-server-*"))


def test_workers_of_a_plain_torchserve_hold_what_it_has_extracted(mar: Mar) -> None:
    home = subprocess.run([*INTERPOOL, "home"], capture_output=True, text=True, check=True).stdout.strip()
    with TorchServe(overlay=False, environment={"TS_MODEL_SERVER_HOME": home}) as server:
        assert server.register(mar(server, "inside", "inside")).status == 200
        shutil.rmtree(server.runtime / "nothing", ignore_errors=True)
        assert _clean(server) == ""
        assert _is_served(server)
