"""A TorchServe of the demo's own: free ports, a directory of its own, always stopped."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import psutil

BIN = Path(sys.executable).parent
START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 30


class DemoError(Exception):
    """Something that the demo started did not do its part."""


class Server:
    """TorchServe with interpool's overlay, in the background.

    Args:
        store: the directory of .mar files.
    """

    def __init__(self, store: Path) -> None:
        # Short, because a unix socket's path may be 107 bytes long.
        self.root = Path(tempfile.mkdtemp(prefix="ip-demo-", dir="/tmp"))
        self.store = store
        ports = _free_ports(5)
        self.inference, self.management, self.metrics = (f"http://127.0.0.1:{port}" for port in ports[:3])
        self.environment = {
            "TEMP": str(self.root),
            "TMPDIR": str(self.root),
            "INTERPOOL_RUNTIME_DIR": str(self.root / "run"),
        }
        properties = {
            "inference_address": self.inference,
            "management_address": self.management,
            "metrics_address": self.metrics,
            "grpc_inference_port": ports[3],
            "grpc_management_port": ports[4],
            "disable_token_authorization": "true",
            "enable_model_api": "true",
            "metrics_mode": "prometheus",
        }
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        (self.root / "config.properties").write_text(text, encoding="utf-8")

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.root / "server.log").open("wb") as log:
            subprocess.run(
                [BIN / "interpool", "serve", "--ncs", "--model-store", self.store,
                 "--ts-config", "config.properties"],
                cwd=self.root,
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # An interrupt is for the demo, which then stops the server itself.
                start_new_session=True,
                check=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with contextlib.suppress(OSError):
                if self.call("GET", f"{self.inference}/ping"):
                    return
            if time.monotonic() > deadline:
                raise DemoError(f"TorchServe did not come up; see {self.root}/server.log")
            time.sleep(0.2)

    def stop(self, *, keep_logs: bool) -> None:
        """Stop it as a user would, and make sure that nothing of it is left running."""
        running = self.processes()
        subprocess.run(
            [BIN / "torchserve", "--stop"],
            cwd=self.root,
            env=os.environ | self.environment,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        _gone, left = psutil.wait_procs(running, timeout=STOP_TIMEOUT_S)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if keep_logs:
            print(f"the server's logs are kept in {self.root}")
        for path in (self.root / "models", self.root / "run") if keep_logs else (self.root,):
            shutil.rmtree(path, ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        """All that run on this server's behalf: they have its TEMP."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("TEMP") == str(self.root):
                    found.append(process)
        return found

    def call(self, method: str, url: str, body: bytes | None = None, content_type: str = "") -> Any:
        """The JSON of an answer; raises DemoError with what the server said if it refused."""
        headers = {"Content-Type": content_type} if content_type else {}
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode("utf-8", "replace").strip()
            raise DemoError(f"{method} {url} was answered {error.code}: {said}") from None

    def register_url(self, archive: str, **query: object) -> str:
        """The URL whose POST registers an archive of the store."""
        return f"{self.management}/models?" + urllib.parse.urlencode({"url": archive, **query})

    def pools(self) -> list[dict[str, Any]]:
        """What `interpool status --json` says of this server's pools."""
        done = subprocess.run(
            [BIN / "interpool", "status", "--json"],
            env=os.environ | self.environment,
            stdout=subprocess.PIPE,
            check=True,
        )
        pools: list[dict[str, Any]] = json.loads(done.stdout)
        return pools


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
