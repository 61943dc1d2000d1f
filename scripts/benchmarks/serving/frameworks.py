"""The servers of the serving benchmark, each started, scaled and stopped as its documentation says.

TorchServe, stock or with the pool, runs a frontend to which models are deployed; a program is the server and
the model in one. Everything of a server's has the server in its environment, by which it is found, weighed
and ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil
from local_server import INTERPOOL, TorchServe, free_ports
from waiting import wait_for

from benchmarks.serving import environment as environments
from benchmarks.serving import handlers, models
from benchmarks.shared import archiving
from benchmarks.shared.checkout import SCRIPTS

PATIENCE_S = 180.0  # what takes longer is stuck
MB = 1e6


def ask(url: str, request: dict[str, Any]) -> tuple[bytes, Any]:
    """An answer, and what its JSON says; raises OSError where there is none."""
    asked = urllib.request.Request(url, json.dumps(request).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        body: bytes = answer.read()
    return body, json.loads(body)


class Server(Protocol):
    """A framework that serves one model."""

    url: str

    def scale(self, workers: int) -> None:
        """Tell it to have so many; returns when it says so, or at once where it does not."""

    def all_answer(self, workers: int) -> bool:
        """Ask as many at once as there are workers, and tell whether all of them have answered by now."""

    def processes(self) -> list[psutil.Process]:
        """All that runs on its behalf."""

    def frontends(self) -> list[psutil.Process]:
        """Those of them that run no model."""

    def deploy_another(self) -> float | None:
        """Seconds until another model on the same server has answered; None where a server has one."""


# ---- TorchServe ----------------------------------------------------------------------------------


def archive(name: str, hermetic: bool, store: Path) -> Path:
    """``NAME.mar``, made once."""
    made = store / f"{name}.mar"
    if made.exists():
        return made
    if hermetic:
        arguments = archiving.hermetic(f"{handlers.__name__}:{name.title()}", store / f"{name}.ptpkg")
    else:
        arguments = archiving.ordinary(f"{handlers.__name__}:{name.title()}", store, models.__name__)
    archiving.archive(name, store, arguments)
    return made


class OnTorchServe:
    """A model on TorchServe."""

    def __init__(self, model: str, archived: Path, running: TorchServe) -> None:
        self._model = model
        self._running = running
        shutil.copy(archived, running.store)
        self.url = f"{running.inference}/predictions/{model}"
        self._deploy(model)

    def _deploy(self, name: str) -> None:
        answer = self._running.register(
            f"{self._model}.mar", model_name=name, batch_size=1, response_timeout=120
        )
        if answer.status != 200:
            raise RuntimeError(f"the model was not registered: {answer.text}")

    def scale(self, workers: int) -> None:
        answer = self._running.scale(self._model, workers)
        if answer.status != 200:
            raise RuntimeError(f"the workers were not started: {answer.text}")

    def all_answer(self, workers: int) -> bool:
        ready = len(self._running.ready_workers(self._model))
        with ThreadPoolExecutor(workers) as threads:
            answers = list(threads.map(ask, [self.url] * workers, [models.WHO] * workers))
        return ready == workers and len(answers) == workers

    def processes(self) -> list[psutil.Process]:
        return self._running.processes()

    def frontends(self) -> list[psutil.Process]:
        return [self._running.frontend]

    def deploy_another(self) -> float | None:
        begun = time.perf_counter()
        self._deploy("another")
        ask(f"{self._running.inference}/predictions/another", models.REQUEST)
        took = time.perf_counter() - begun
        self._running.unregister("another")
        return took


@contextlib.contextmanager
def torchserve(model: str, folder: Path, _most: int, overlay: bool, hermetic: bool) -> Iterator[Server]:
    environment = {
        "INTERPOOL_INTERPRETERS": "",
        "INTERPOOL_ORDINARY_ARCHIVES": "pool",
    }  # empty counts as unset
    store = folder / ("hermetic" if hermetic else "ordinary")
    with TorchServe(overlay=overlay, environment=environment) as running:
        yield OnTorchServe(model, store / f"{model}.mar", running)


class OnDirectAddress(OnTorchServe):
    """The same model, asked at the direct address beside that TorchServe."""

    def __init__(self, model: str, archived: Path, running: TorchServe, address: str) -> None:
        super().__init__(model, archived, running)
        self._inference = f"http://{address}"
        self.url = f"{self._inference}/predictions/{model}"
        wait_for(lambda: _answers(self.url), "the direct address", seconds=PATIENCE_S)

    def all_answer(self, workers: int) -> bool:
        pools = self._running.pools().values()
        ready = sum(each["started"] for pool in pools for each in pool["beside"])
        return ready == workers and super().all_answer(workers)


def _answers(url: str) -> bool:
    try:
        return bool(ask(url, models.REQUEST))
    except OSError:
        return False


@contextlib.contextmanager
def direct(model: str, folder: Path, _most: int) -> Iterator[Server]:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    environment = {"INTERPOOL_INTERPRETERS": "", "INTERPOOL_DIRECT_ADDRESS": address}
    with TorchServe(overlay=True, environment=environment) as running:
        yield OnDirectAddress(model, folder / "hermetic" / f"{model}.mar", running, address)


# ---- programs ------------------------------------------------------------------------------------


class OnProgram:
    """A model in a program that serves it."""

    def __init__(self, command: list[str], environment: dict[str, str], path: str, told: bool) -> None:
        self._run = uuid.uuid4().hex
        self._command = command
        self._told = told  # reads what it is to do while it runs
        self._folder = tempfile.mkdtemp(prefix="sv-")  # short: sockets live below
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}{path}"
        self._environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(SCRIPTS),
            "TMPDIR": self._folder,
            "SERVING_RUN": self._run,
            "SERVING_PORT": str(port),
            **environment,
        }
        self._log = Path(self._folder) / "log"
        self._workers: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """Serve by one worker during a ``with`` block, and remove what it has written."""
        try:
            self.start(1)
            yield self
        finally:
            self.end()
            shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, workers: int) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    word.replace("$PORT", self._environment["SERVING_PORT"]).replace("$WORKERS", str(workers))
                    for word in self._command
                ],
                env={**self._environment, "SERVING_WORKERS": str(workers)},
                cwd=SCRIPTS,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait_for_an_answer(self.url)

    def _wait_for_an_answer(self, url: str) -> None:
        def answers() -> bool:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"it ended with {self._process.returncode}: {self.said()}")
            try:
                return bool(ask(url, models.REQUEST))
            except urllib.error.HTTPError as error:
                with error:
                    if 400 <= error.code < 500 and error.code not in (404, 429):  # it is no use to wait
                        raise RuntimeError(f"it answers {error.code}: {error.read()[:500]!r}") from None
            except (OSError, ValueError):
                pass
            return False

        wait_for(answers, lambda: f"its first answer: {self.said()}", seconds=PATIENCE_S)

    def said(self) -> str:
        """The end of what it wrote."""
        return self._log.read_text(errors="replace")[-1500:]

    def scale(self, workers: int) -> None:
        if self._told:
            self._tell(str(workers))
        else:
            self.end()
            self.start(workers)

    def _tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def all_answer(self, workers: int) -> bool:
        with ThreadPoolExecutor(workers) as threads:
            answers = list(threads.map(ask, [self.url] * workers, [models.WHO] * workers))
        # Those of before count as long as they live: they may still be answering.
        alive = {process.pid for process in self.processes()}
        self._workers = (self._workers | {each["pid"] for _, each in answers}) & alive
        return len(self._workers) == workers

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _is_mine(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return process.environ().get("SERVING_RUN") == self._run
        return False

    def frontends(self) -> list[psutil.Process]:
        return [process for process in self.processes() if process.pid not in self._workers]

    def deploy_another(self) -> float | None:
        if not self._told:
            return None
        begun = time.perf_counter()
        self._tell("another")
        self._wait_for_an_answer(self.url.replace("/predict", "/another"))
        took = time.perf_counter() - begun
        self._tell("no other")
        return took

    def end(self) -> None:
        """As a user ends it; what is left after that is killed."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        left = self.processes()
        if not self._told:
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        psutil.wait_procs([process for process in left if process.pid != self._process.pid], timeout=3)
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._process = None


@dataclass(frozen=True)
class Program:
    """How a framework is called, by its own Python, with ``$PORT`` for the port."""

    pins: tuple[str, ...]
    arguments: tuple[str, ...]
    path: str
    scales: bool = False

    def __call__(self, model: str, folder: Path, most: int) -> contextlib.AbstractContextManager[Server]:
        python = environments.python_of(self.pins)
        command = [str(python), "-m", *self.arguments]
        environment = {
            "SERVING_MODEL": model,
            "SERVING_MOST": str(most),
            "BENTOML_HOME": str(folder / "bentoml"),
            "BENTOML_DO_NOT_TRACK": "True",
            "RAY_USAGE_STATS_ENABLED": "0",
            # As Ray's documentation advises for throughput.
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
            "RAY_SERVE_ENABLE_HA_PROXY": str(int(shutil.which("haproxy") is not None)),
        }
        return OnProgram(command, environment, self.path, self.scales).running()


class OnRun(OnProgram):
    """interpool run, whose workers are one process."""

    def all_answer(self, workers: int) -> bool:
        with ThreadPoolExecutor(workers) as threads:
            answers = list(threads.map(ask, [self.url] * workers, [models.WHO] * workers))
        return len(answers) == workers

    def frontends(self) -> list[psutil.Process]:
        return []


def run_alone(model: str, folder: Path, _most: int) -> contextlib.AbstractContextManager[Server]:
    archive = folder / "hermetic" / f"{model}.ptpkg"
    command = [*INTERPOOL, "run", str(archive), "--port", "$PORT", "--workers", "$WORKERS"]
    environment = {"INTERPOOL_INTERPRETERS": ""}
    return OnRun(command, environment, f"/predictions/{model}", told=False).running()


# ---- all of them ---------------------------------------------------------------------------------

PROGRAMS = "benchmarks.serving.programs"
PACKED, ORDINARY, STOCK = "interpool, packed", "interpool, ordinary archive", "stock TorchServe"
DIRECT, ALONE, MOSEC = "interpool, direct", "interpool run", "mosec"


def on_torchserve(overlay: bool, hermetic: bool) -> Callable[..., Any]:
    return lambda model, folder, most: torchserve(model, folder, most, overlay, hermetic)


FRAMEWORKS: dict[str, Callable[[str, Path, int], contextlib.AbstractContextManager[Server]]] = {
    PACKED: on_torchserve(overlay=True, hermetic=True),
    ORDINARY: on_torchserve(overlay=True, hermetic=False),
    STOCK: on_torchserve(overlay=False, hermetic=False),
    DIRECT: direct,
    ALONE: run_alone,
    "FastAPI": Program(
        ("fastapi==0.165.0", "uvicorn[standard]==0.54.0"),
        (
            *("uvicorn", f"{PROGRAMS}.fastapi_server:app", "--host", "127.0.0.1", "--port", "$PORT"),
            *("--workers", "$WORKERS", "--log-level", "warning"),
        ),
        "/predict",
    ),
    "LitServe": Program(("litserve==0.2.19",), (f"{PROGRAMS}.litserve_server",), "/predict"),
    MOSEC: Program(
        ("mosec==0.9.8",),
        (f"{PROGRAMS}.mosec_server", "--address", "127.0.0.1", "--port", "$PORT"),
        "/inference",
    ),
    "Ray Serve": Program(("ray[serve]==2.60.0",), (f"{PROGRAMS}.ray_application",), "/predict", scales=True),
    "BentoML": Program(
        ("bentoml==1.4.39",),
        ("bentoml", "serve", f"{PROGRAMS}.bentoml_service:Service", "--host", "127.0.0.1", "--port", "$PORT"),
        "/predict",
    ),
}


def memory(server: Server) -> dict[str, float]:
    """Proportional memory of its workers and of its frontends, MB."""
    frontends = {process.pid for process in server.frontends()}
    found = {"workers": 0.0, "frontends": 0.0}
    for process in server.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            part = "frontends" if process.pid in frontends else "workers"
            found[part] += process.memory_full_info().pss / MB
    return found
