"""Which hosts learn that their server is about to end."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest

from interpool.handler.frontend import shim
from interpool.handler.host import control, draining


def test_only_the_hosts_of_the_same_frontend_learn_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frontends in containers of one image often have the same process id."""
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(tmp_path))
    own = tmp_path / shim.instance_key(os.getpid(), "default")
    other = tmp_path / f"{os.getpid()}-4711-deadbeef.f0000123-default"
    asked: list[Path] = []

    def answer(listener: socket.socket, directory: Path) -> None:
        with listener, listener.accept()[0] as peer:
            if peer.recv(100):
                asked.append(directory)
                peer.send(json.dumps({"interpreters": None}).encode())

    threads = []
    for directory in (own, other):
        directory.mkdir()
        listener = control.listen(directory)
        listener.setblocking(True)
        threads.append(threading.Thread(target=answer, args=(listener, directory), daemon=True))
        threads[-1].start()
    assert not draining._is_busy(os.getpid())
    assert asked == [own]
    shim.connect_control(str(other)).close()  # ends its thread
    for thread in threads:
        thread.join()
