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
from functools import partial
from pathlib import Path
from typing import Any, Self

import psutil
from local_server import INTERPOOL, TorchServe, free_ports
from waiting import wait_for

from benchmarks.serving import environment as environments
from benchmarks.serving import models, tensors
from benchmarks.shared import archiving
from benchmarks.shared.checkout import SCRIPTS
from benchmarks.shared.memory import pss_mb

PATIENCE_S = 600.0  # what takes longer is stuck; forty workers that start at once take minutes


@dataclass(frozen=True)
class Order:
    """What a framework is to serve when it starts.

    Attributes:
        model: one of those in models.py.
        names: the names under which its server has that model, each with workers of its own.
        workers: of each name.
        most: of each name, as long as the server runs.
    """

    model: str
    most: int
    workers: int = 1
    names: tuple[str, ...] = ("served",)


def posted(url: str, request: dict[str, Any]) -> bytes:
    """The body by which a request is sent to that address."""
    return json.dumps(tensors.wrapped(request) if tensors.PATH in url else request).encode()


def ask(url: str, request: dict[str, Any]) -> tuple[bytes, Any]:
    """An answer, and what its JSON says; raises OSError if there is none."""
    asked = urllib.request.Request(url, posted(url, request), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        body: bytes = answer.read()
    said = json.loads(body)
    return body, tensors.unwrapped(said) if tensors.PATH in url else said


class WrongAnswerError(RuntimeError):
    """What a server answered is not what the model answers."""


def right_answer(model: str, url: str) -> bytes:
    """The server's answer, once it has been compared with that of the model in this process."""
    question = models.MODELS[model].question
    body, said = ask(url, question)
    expected = models.build(model).answer(question)
    if said != expected:
        raise WrongAnswerError(f"{said}, which is not {expected}")
    return body


def who_answers(url: str, requests: int) -> list[Any]:
    """The processes that answer so many requests at once, as they say; raises OSError if one does not."""
    with ThreadPoolExecutor(requests) as threads:
        return [said["pid"] for _, said in threads.map(ask, [url] * requests, [models.WHO] * requests)]


# ---- TorchServe ----------------------------------------------------------------------------------


def archive(name: str, hermetic: bool, store: Path) -> Path:
    """``NAME.mar``, made once."""
    made = store / f"{name}.mar"
    if made.exists():
        return made
    if hermetic:
        arguments = archiving.hermetic(f"{models.__name__}:{name.title()}", store / f"{name}.ptpkg")
    else:
        arguments = archiving.ordinary(f"{models.__name__}:{name.title()}", store, models.IMPORTED)
    archiving.archive(name, store, arguments)
    return made


class OnTorchServe:
    """A model on TorchServe.

    Attributes:
        urls: where each name is asked.
    """

    def __init__(self, order: Order, archived: Path, running: TorchServe) -> None:
        self._order = order
        self._running = running
        shutil.copy(archived, running.store)
        for name in order.names:
            self._deploy(name, order.workers)
        self.urls = [self._url(name) for name in order.names]
        for url in self.urls:
            wait_for(lambda url=url: _answers(url), url, seconds=PATIENCE_S)  # type: ignore[misc]

    def _url(self, name: str) -> str:
        return f"{self._running.inference}/predictions/{name}"

    def _deploy(self, name: str, workers: int) -> None:
        registered = self._running.register(
            f"{self._order.model}.mar",
            model_name=name,
            initial_workers=workers,
            batch_size=models.MODELS[self._order.model].batch,
            max_batch_delay=models.BATCH_DELAY_MS,
            response_timeout=120,
        )
        self._running.checked(registered)

    def scale(self, workers: int) -> None:
        """Ask it to have so many for each name; returns when it says so."""
        for name in self._order.names:
            self._running.checked(self._running.scale(name, workers))

    def all_answer(self, workers: int) -> bool:
        """Ask as many at once as a name has workers; whether all workers of each have answered by now."""
        return all(
            len(self._running.ready_workers(name)) == workers == len(who_answers(url, workers))
            for name, url in zip(self._order.names, self.urls, strict=True)
        )

    def processes(self) -> list[psutil.Process]:
        """All that runs on its behalf."""
        return self._running.processes()

    def frontends(self) -> list[psutil.Process]:
        """Those of them that run no model."""
        return [self._running.frontend]

    def deploy_another(self) -> float | None:
        """Seconds until another model on the same server has answered; None if a server has one."""
        begun = time.perf_counter()
        self._deploy("another", 1)
        ask(self._url("another"), models.REQUEST)
        took = time.perf_counter() - begun
        self._running.unregister("another")
        return took


class OnDirectAddress(OnTorchServe):
    """The same model, asked at the direct address beside that TorchServe."""

    def _url(self, name: str) -> str:
        return f"http://{self._running.environment['INTERPOOL_DIRECT_ADDRESS']}/predictions/{name}"

    def all_answer(self, workers: int) -> bool:
        pools = self._running.pools().values()
        ready = sum(each["started"] for pool in pools for each in pool["beside"])
        return ready == workers * len(self.urls) and super().all_answer(workers)


def _answers(url: str) -> bool:
    try:
        return bool(ask(url, models.REQUEST))
    except OSError:
        return False


@contextlib.contextmanager
def torchserve(
    order: Order, folder: Path, overlay: bool, hermetic: bool, direct: bool = False
) -> Iterator[OnTorchServe]:
    environment = {"INTERPOOL_INTERPRETERS": "", "INTERPOOL_ORDINARY_ARCHIVES": "pool"}  # "": as if unset
    if direct:
        (port,) = free_ports(1)
        environment["INTERPOOL_DIRECT_ADDRESS"] = f"127.0.0.1:{port}"
    archived = folder / ("hermetic" if hermetic else "ordinary") / f"{order.model}.mar"
    with TorchServe(overlay=overlay, environment=environment) as running:
        yield (OnDirectAddress if direct else OnTorchServe)(order, archived, running)


# ---- programs ------------------------------------------------------------------------------------


class OnProgram:
    """A model in a program that serves it; what is public is as OnTorchServe's.

    Args:
        command: with ``$PORT`` for the port and ``$WORKERS`` for the number of workers.
        environment: added to the program's.
        path: where a name is asked, with ``$NAME`` for it.
        order: what it serves.

    Attributes:
        scales: whether it changes the number of workers while it runs.
        several: whether it takes several names.
    """

    scales = several = False

    def __init__(self, command: list[str], environment: dict[str, str], path: str, order: Order) -> None:
        self._run = uuid.uuid4().hex
        self._command = command
        self._order = order
        self._folder = tempfile.mkdtemp(prefix="sv-")  # short: sockets live below
        (port,) = free_ports(1)
        self._at = f"http://127.0.0.1:{port}"
        self._path = path
        self.urls = [self._url(name) for name in order.names]
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
        self._workers: dict[str, set[int]] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def _url(self, name: str) -> str:
        return self._at + self._path.replace("$NAME", name)

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """Serve during a ``with`` block, and remove what it has written."""
        try:
            self.start(self._order.workers)
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
        self._deploy(workers)
        for url in self.urls:
            self._wait_for_an_answer(url)

    def _deploy(self, workers: int) -> None:
        """Have it serve each name by so many workers, if its command does not say that."""

    def _wait_for_an_answer(self, url: str) -> None:
        def answers() -> bool:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"it ended with {self._process.returncode}: {self.said()}")
            try:
                return bool(ask(url, models.REQUEST))
            except urllib.error.HTTPError as error:
                with error:
                    said = error.read()[:500]
                waits = error.code in (404, 429) or b"not ready" in said
                if 400 <= error.code < 500 and not waits:  # it is no use to wait
                    raise RuntimeError(f"it answers {error.code}: {said!r}") from None
            except (OSError, ValueError):
                pass
            return False

        wait_for(answers, lambda: f"its first answer: {self.said()}", seconds=PATIENCE_S)

    def said(self) -> str:
        """The end of what it wrote."""
        return self._log.read_text(errors="replace")[-1500:]

    def scale(self, workers: int) -> None:
        if self.scales:
            self._deploy(workers)
        else:
            self.end()
            self.start(workers)

    def all_answer(self, workers: int) -> bool:
        at_once = workers * models.MODELS[self._order.model].batch  # if fewer, one worker might take all
        answered = {url: {*who_answers(url, at_once)} for url in self.urls}
        # Those of before count as long as they live: they may still be answering.
        alive = {process.pid for process in self.processes()}
        for url, by in answered.items():
            self._workers[url] = (self._workers.get(url, set()) | by) & alive
        return all(len(each) == workers for each in self._workers.values())

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _is_mine(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return process.environ().get("SERVING_RUN") == self._run
        return False

    def frontends(self) -> list[psutil.Process]:
        workers = {pid for each in self._workers.values() for pid in each}
        return [process for process in self.processes() if process.pid not in workers]

    def deploy_another(self) -> float | None:
        return None

    def end(self) -> None:
        """As a user ends it; what is left after that is killed."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        left = self.processes()
        self._stop(self._process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        psutil.wait_procs([process for process in left if process.pid != self._process.pid], timeout=3)
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._process = None

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()


class OnTold(OnProgram):
    """A program that reads what it is to do, and ends with its input."""

    def _tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        pass


class OnRay(OnTold):
    """Ray Serve's program, which takes names and their numbers of workers while it runs."""

    scales = several = True

    def _deploy(self, workers: int) -> None:
        for name in self._order.names:
            self._tell(f"{name} {workers}")

    def deploy_another(self) -> float | None:
        begun = time.perf_counter()
        self._tell("another 1")
        self._wait_for_an_answer(self._url("another"))
        took = time.perf_counter() - begun
        self._tell("another 0")
        return took


class OnSeveral(OnProgram):
    """A program that takes several names when it starts."""

    several = True


class OnRun(OnSeveral):
    """interpool run, whose workers are one process."""

    def all_answer(self, workers: int) -> bool:
        return all(len(who_answers(url, workers)) == workers for url in self.urls)

    def frontends(self) -> list[psutil.Process]:
        return []


def run_alone(order: Order, folder: Path) -> contextlib.AbstractContextManager[OnProgram]:
    archive = folder / "hermetic" / f"{order.model}.ptpkg"
    command = [*INTERPOOL, "run", *(f"{name}={archive}" for name in order.names)]
    command += ["--port", "$PORT", "--workers", "$WORKERS"]
    command += ["--batch-size", str(models.MODELS[order.model].batch)]
    command += ["--max-batch-delay", str(models.BATCH_DELAY_MS)]
    environment = {"INTERPOOL_INTERPRETERS": ""}
    return OnRun(command, environment, "/predictions/$NAME", order).running()


@dataclass(frozen=True)
class Program:
    """How a framework is called, by its own Python; see OnProgram."""

    pins: tuple[str, ...]
    arguments: tuple[str, ...]
    path: str
    kind: type[OnProgram] = OnProgram

    def __call__(self, order: Order, folder: Path) -> contextlib.AbstractContextManager[OnProgram]:
        python = environments.python_of(self.pins)
        command = [str(python), "-m", *self.arguments]
        environment = {
            "SERVING_MODEL": order.model,
            "SERVING_NAMES": " ".join(order.names),
            "SERVING_MOST": str(order.most * len(order.names)),
            "BENTOML_HOME": str(folder / "bentoml"),
            "BENTOML_DO_NOT_TRACK": "True",
            "RAY_USAGE_STATS_ENABLED": "0",
            # As Ray's documentation advises for throughput.
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
            "RAY_SERVE_ENABLE_HA_PROXY": str(int(shutil.which("haproxy") is not None)),
        }
        return self.kind(command, environment, self.path, order).running()


# ---- all of them ---------------------------------------------------------------------------------

Server = OnTorchServe | OnProgram

PROGRAMS = "benchmarks.serving.programs"
PACKED, ORDINARY, STOCK = "interpool, packed", "interpool, ordinary archive", "stock TorchServe"
DIRECT, ALONE, MOSEC = "interpool, direct", "interpool run", "mosec"


FRAMEWORKS: dict[str, Callable[[Order, Path], contextlib.AbstractContextManager[Server]]] = {
    PACKED: partial(torchserve, overlay=True, hermetic=True),
    ORDINARY: partial(torchserve, overlay=True, hermetic=False),
    STOCK: partial(torchserve, overlay=False, hermetic=False),
    DIRECT: partial(torchserve, overlay=True, hermetic=True, direct=True),
    ALONE: run_alone,
    "FastAPI": Program(
        ("fastapi==0.165.0", "uvicorn[standard]==0.54.0"),
        (
            *("uvicorn", f"{PROGRAMS}.fastapi_server:app", "--host", "127.0.0.1", "--port", "$PORT"),
            *("--workers", "$WORKERS", "--log-level", "warning"),
        ),
        "/predict",
    ),
    "granian": Program(
        ("fastapi==0.165.0", "granian==2.8.9"),
        (
            *("granian", f"{PROGRAMS}.fastapi_server:app", "--interface", "asgi", "--host", "127.0.0.1"),
            *("--port", "$PORT", "--workers", "$WORKERS", "--log-level", "warning"),
        ),
        "/predict",
    ),
    "LitServe": Program(("litserve==0.2.19",), (f"{PROGRAMS}.litserve_server",), "/predict"),
    MOSEC: Program(
        ("mosec==0.9.8",),
        (f"{PROGRAMS}.mosec_server", "--address", "127.0.0.1", "--port", "$PORT", "--timeout", "60000"),
        "/inference",
    ),
    "Ray Serve": Program(("ray[serve]==2.60.0",), (f"{PROGRAMS}.ray_application",), "/$NAME", OnRay),
    "MLServer": Program(
        ("mlserver==1.7.1", "uvloop==0.21.0"),  # no worker of it starts with a newer uvloop
        (f"{PROGRAMS}.mlserver_model",),
        f"{tensors.PATH}$NAME/infer",
        OnSeveral,
    ),
    "BentoML": Program(
        ("bentoml==1.4.39",),
        ("bentoml", "serve", f"{PROGRAMS}.bentoml_service:Service", "--host", "127.0.0.1", "--port", "$PORT"),
        "/predict",
    ),
}


def memory(server: Server) -> dict[str, float]:
    """Proportional memory of its workers and of its frontends, MB."""
    frontends = server.frontends()
    workers = [process for process in server.processes() if process not in frontends]
    return {"workers": pss_mb(workers), "frontends": pss_mb(frontends)}
