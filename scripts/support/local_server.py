"""A real TorchServe of one's own: free ports, own directories, always stopped."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil
from waiting import NOT_STUCK_S, wait_for

from interpool.handler.host.status import ask_hosts_below

INTERPOOL = [sys.executable, "-c", "from interpool.handler.cli import main; main()"]
JSON = "application/json"
PATIENCE_S = 300.0  # more than TorchServe's own two minutes, after which it says what is wrong


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(request: urllib.request.Request, timeout: float, context: ssl.SSLContext | None = None) -> Answer:
    """Send a request; gives any answer, an error's too. Raises OSError without one."""
    try:
        with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:
            return Answer(answer.status, answer.read(), answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read(), error.headers)


@dataclass
class TorchServe:
    """A TorchServe that runs in the background, in a directory of its own.

    Args:
        overlay: serve hermetic models from the pool; False is the server as it was installed.
        environment: added to the server's.
        properties: added to its config.properties.
        prefix: of the directory's name below /tmp.
        store: the model store; one of its own by default.
        launcher: what starts the command, if it is to run under other rules.
    """

    overlay: bool = True
    environment: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    prefix: str = "ip-"
    store: Path = field(default=Path("store"))
    launcher: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Short: TorchServe's sockets live below, and a socket's path may be 107 bytes long.
        self.root = Path(tempfile.mkdtemp(prefix=self.prefix))
        self.store = self.root / self.store
        self.tmp = self.root / "tmp"
        self.runtime = self.root / "run"
        self.logs = self.root / "logs"
        self._read_before: dict[Path, int] = {}
        for directory in (self.store, self.tmp, self.logs):
            directory.mkdir(exist_ok=True)
        ports = free_ports(5)
        self.inference = f"http://127.0.0.1:{ports[0]}"
        self.management = f"http://127.0.0.1:{ports[1]}"
        self.metrics = f"http://127.0.0.1:{ports[2]}"
        self.grpc_ports = ports[3], ports[4]  # inference, management
        properties = {
            "inference_address": self.inference,
            "management_address": self.management,
            "metrics_address": self.metrics,
            "grpc_inference_port": str(ports[3]),
            "grpc_management_port": str(ports[4]),
            "disable_token_authorization": "true",
            "enable_model_api": "true",
            "metrics_mode": "prometheus",
            "disable_system_metrics": "true",  # of the machine: a Python that starts beside what is tested
            **self.properties,
        }
        lines = [f"{name}={value}\n" for name, value in properties.items()]
        (self.root / "config.properties").write_text("".join(lines))

    # ---- life ------------------------------------------------------------------------------

    def start(self) -> Self:
        command = [*self.launcher, *self.command("--start", *self._flags())]
        with (self.root / "start.log").open("wb") as log:
            done = subprocess.run(
                command,
                cwd=self.root,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # An interrupt is for the caller, which then stops the server itself.
                start_new_session=True,
                check=False,
                timeout=60,
            )
        if done.returncode:
            raise AssertionError(f"TorchServe did not start: {(self.root / 'start.log').read_text()}")
        self.frontend = psutil.Process(int((self.tmp / ".model_server.pid").read_text()))
        wait_for(self._answers, f"TorchServe in {self.root}", pause=0.1)
        return self

    def _answers(self) -> bool:
        if not _alive(self.frontend):
            raise AssertionError(f"TorchServe ended: {(self.root / 'start.log').read_text()}")
        # It binds its addresses one after the other, that of the management last of those that tests need.
        return self.get("/ping").status == 200 and _listens(self.management)

    def stop(self) -> None:
        """Stop it as a user does, and wait until nothing of it runs."""
        left = self.processes()
        subprocess.run(
            self.command("--stop"), cwd=self.root, env=self._environment(), timeout=60, check=False
        )
        _wait_for_the_end(left)

    def _terminate(self) -> None:
        """What ``torchserve --stop`` does to the frontend, without starting a Python or two for it."""
        left = self.processes()
        with contextlib.suppress(psutil.NoSuchProcess):
            self.frontend.terminate()
        _wait_for_the_end(left)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._kill()
            raise

    def __exit__(self, *_error: object) -> None:
        try:
            self._terminate()
        finally:
            self._kill()
            shutil.rmtree(self.root, ignore_errors=True)

    def command(self, *arguments: str) -> list[str]:
        if self.overlay:
            return [*INTERPOOL, "serve", *arguments]
        return [str(Path(sys.executable).with_name("torchserve")), *arguments]

    def _flags(self) -> list[str]:
        return ["--ncs", "--model-store", str(self.store), "--ts-config", "config.properties"]

    @property
    def own_environment(self) -> dict[str, str]:
        """What distinguishes this server from others, for commands that are to reach it."""
        return {"TEMP": str(self.tmp), "TMPDIR": str(self.tmp), "INTERPOOL_RUNTIME_DIR": str(self.runtime)}

    def _environment(self) -> dict[str, str]:
        environment = {
            **os.environ,
            **self.own_environment,
            "INTERPOOL_INTERPRETERS": "2",
            "OMP_NUM_THREADS": "1",
        }
        environment.pop("TS_MODEL_SERVER_HOME", None)
        return {**environment, **self.environment}

    def _kill(self) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def pools(self) -> dict[str, dict[str, Any]]:
        """What `interpool status --json` would print of this server's pools, by their names."""
        pools, _ = ask_hosts_below(self.runtime)
        return {pool["pool"]: pool for pool in pools}

    # ---- processes -------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """Everything that runs on this server's behalf: it has the server's TEMP."""
        mine = f"TEMP={self.tmp}".encode()
        found = []
        # Not psutil's environ() of each, which takes many times as long: tests ask again and again.
        for pid in sorted(map(int, filter(str.isdecimal, os.listdir("/proc")))):
            with contextlib.suppress(OSError, psutil.Error):
                if mine in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found.append(psutil.Process(pid))
        return found

    def hosts(self) -> list[psutil.Process]:
        return [p for p in self.processes() if "interpool.handler.host.start" in command_of(p)]

    def shims(self) -> list[psutil.Process]:
        return [p for p in self.processes() if "model_service_worker.py" in command_of(p)]

    def sockets(self) -> list[str]:
        return sorted(path.name for path in self.tmp.glob(".ts.sock.*"))

    # ---- HTTP ------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        url: str,
        /,
        body: bytes | None = None,
        content_type: str | None = None,
        timeout: float = PATIENCE_S,
        **query: object,
    ) -> Answer:
        if query:
            words = {n: str(v).lower() if isinstance(v, bool) else v for n, v in query.items()}
            url += "?" + urllib.parse.urlencode(words)
        headers = {"Content-Type": content_type} if content_type else {}
        return ask(urllib.request.Request(url, body, headers, method=method), timeout)

    def get(self, path: str) -> Answer:
        try:
            return self.request("GET", self.inference + path)
        except OSError as error:
            return Answer(0, str(error).encode(), {})

    def predict(self, model: str, value: object, timeout: float = PATIENCE_S) -> Answer:
        """Post a JSON value to a model, ``name`` or ``name/version``."""
        return self.post(model, json.dumps(value).encode(), JSON, timeout)

    def post(self, model: str, body: bytes, content_type: str | None, timeout: float = PATIENCE_S) -> Answer:
        url = f"{self.inference}/predictions/{model}"
        return self.request("POST", url, body, content_type, timeout)

    def post_form(self, model: str, fields: dict[str, tuple[bytes, str | None]]) -> Answer:
        """Post a multipart form: name to (content, content type)."""
        boundary = uuid.uuid4().hex
        body = b""
        for name, (content, content_type) in fields.items():
            body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'.encode()
            if content_type is not None:
                body += f'; filename="{name}"\r\nContent-Type: {content_type}'.encode()
            body += b"\r\n\r\n" + content + b"\r\n"
        body += f"--{boundary}--\r\n".encode()
        return self.post(model, body, f"multipart/form-data; boundary={boundary}")

    def register(self, archive: str, **query: object) -> Answer:
        query = {"initial_workers": 1, "synchronous": True, **query}
        return self.request("POST", f"{self.management}/models", url=archive, **query)

    def scale(self, model: str, workers: int, **query: object) -> Answer:
        query = {"min_worker": workers, "max_worker": workers, "synchronous": True, **query}
        return self.request("PUT", f"{self.management}/models/{model}", **query)

    def describe(self, model: str, **query: object) -> Any:
        return self.request("GET", f"{self.management}/models/{model}", **query).json

    def ready_workers(self, model: str) -> list[int]:
        """The processes of its workers that TorchServe calls ready."""
        return [worker["pid"] for worker in self.describe(model)[0]["workers"] if worker["status"] == "READY"]

    def models(self) -> list[str]:
        """The names of what is registered."""
        listed = self.request("GET", f"{self.management}/models").json["models"]
        return [model["modelName"] for model in listed]

    def unregister(self, model: str) -> Answer:
        return self.request("DELETE", f"{self.management}/models/{model}")

    def checked(self, answer: Answer) -> Answer:
        """A success as it is; raises RuntimeError with what an error, and the models' log, say."""
        if answer.status not in (200, 202):
            raise RuntimeError(f"{answer.status} {answer.text}\n{self.model_log()[-2000:]}")
        return answer

    # ---- logs ------------------------------------------------------------------------------

    def begin_logs(self) -> None:
        """Leave out what has been logged so far."""
        for path in (*self.runtime.glob("*/*.log"), *self.logs.glob("*.log")):
            self._read_before[path] = path.stat().st_size

    def model_log(self) -> str:
        return self._since(self.logs / "model_log.log")

    def host_log(self) -> str:
        """What hosts have logged, wherever that is."""
        name = "interpool_host_*.log"
        paths = [*self.runtime.glob(f"*/{name}"), *self.logs.glob(name)]
        return "".join(map(self._since, paths))

    def _since(self, path: Path) -> str:
        """What a log says since ``begin_logs``."""
        if not path.exists():
            return ""
        return path.read_bytes()[self._read_before.get(path, 0) :].decode()

    def wait_for_all_interpreters(self) -> None:
        """Until the two of them are ready, and the one model there is has been loaded in both."""
        wait_for(
            lambda: all(text in self.host_log() for text in ("all of 2 interpreters", " ahead")),
            lambda: f"the pool to be complete: {self.host_log()}",
        )

    def wait_for_interpreters(self, count: int) -> None:
        """Until the host that started last has so many."""
        text = f"all of {count} interpreters"
        wait_for(lambda: text in self.host_log().rpartition(": pool '")[2], lambda: self.host_log()[-2000:])

    def kill_host(self) -> int:
        """kill -9 the one pool host; gives its pid."""
        (host,) = self.hosts()
        host.send_signal(signal.SIGKILL)
        wait_for(lambda: not _alive(host), "the host's death")
        return int(host.pid)


@contextlib.contextmanager
def torchserve(**options: Any) -> Iterator[TorchServe]:
    """A server for one test."""
    with TorchServe(**options) as server:
        yield server


def _wait_for_the_end(processes: list[psutil.Process]) -> None:
    """Of all that ran when a server was stopped; what does not end is killed, and fails the test."""
    _gone, alive = psutil.wait_procs(processes, timeout=NOT_STUCK_S)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    assert not alive, f"still running after torchserve --stop: {alive}"


def _listens(address: str) -> bool:
    where = urllib.parse.urlsplit(address)
    try:
        socket.create_connection((str(where.hostname), where.port or 0), NOT_STUCK_S).close()
    except OSError:
        return False
    return True


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def command_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def free_ports(count: int) -> list[int]:
    """Ports on 127.0.0.1 that are this process's to give to a server, as often as it likes, until it ends.

    Each is held by a socket that is bound and listens on nothing. Connections and other processes do not
    get the port. Servers do, as they set SO_REUSEADDR or SO_REUSEPORT.
    """
    ports = []
    for _ in range(count):
        held = socket.socket()
        held.bind(("127.0.0.1", 0))
        # After bind: set before it, they would let the kernel choose a port that another one holds like this.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        ports.append(held.getsockname()[1])
        held.detach()  # the descriptor stays open until the process ends
    return ports
