"""The demo: two models with modules of the same names, served by one process of interpreters.

Run by scripts/demo in the checkout's .venv. Exits 0 if every answer that came over HTTP
equals that of an ordinary Python process, which builds the same model from its source.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "support"))

from local_server import TorchServe  # noqa: E402

BIN = Path(sys.executable).parent
STORE = ROOT / "model_store"
WORKERS = 3
REQUESTS = 24
CLIENTS = 8
TOLERANCE = 1e-5

console = Console(highlight=False)


class DemoError(Exception):
    """Something that the demo started did not do its part."""


class Server(TorchServe):
    """TorchServe with interpool's overlay, in the background."""

    def leave(self, *, keep_logs: bool) -> None:
        """Stop it as a user would, and leave nothing of it but, if asked, its logs."""
        try:
            self.stop()
        finally:
            self._kill()
            if keep_logs:
                print(f"the server's logs are kept in {self.logs}")
            for path in (self.tmp, self.runtime) if keep_logs else (self.root,):
                shutil.rmtree(path, ignore_errors=True)

    def call(self, url: str, body: bytes | None = None, content_type: str = "") -> Any:
        """Post to a URL; the answer's JSON. Raises DemoError with what the server said if it refused."""
        answer = self.request("POST", url, body, content_type or None, timeout=120)
        if answer.status != 200:
            raise DemoError(f"POST {url} was answered {answer.status}: {answer.text.strip()}")
        return answer.json

    def register_url(self, model: Model, **query: object) -> str:
        """The URL whose POST registers a model's archive, with several workers."""
        query = {"url": f"{model.name}.mar", "initial_workers": WORKERS, "synchronous": "true", **query}
        return f"{self.management}/models?{urllib.parse.urlencode(query)}"


@dataclass(frozen=True)
class Request:
    """One HTTP request's body."""

    content_type: str
    body: bytes
    shown: str

    def for_reference(self) -> dict[str, Any]:
        """The body as scripts/reference.py takes it."""
        if self.content_type == "application/json":
            return {"json": json.loads(self.body)}
        return {"base64": base64.b64encode(self.body).decode("ascii")}


@dataclass
class Model:
    """One of the sample models, and what was asked and answered."""

    name: str
    sample: str
    requests: list[Request]
    answers: list[dict[str, Any]] = field(default_factory=list)
    expected: list[dict[str, Any]] = field(default_factory=list)

    def differences(self) -> list[float]:
        """For each request the largest difference of a score; infinite if a label differs or one is nan."""
        return [
            _difference(found, expected) for found, expected in zip(self.answers, self.expected, strict=True)
        ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave the server running")
    keep = parser.parse_args().keep
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGHUP, _leave)
    models = [Model("bert", "sample.json", _texts()), Model("convnet", "sample.png", _images())]
    try:
        return run(models, keep=keep)
    except (AssertionError, DemoError, subprocess.SubprocessError) as error:
        console.print("[red]The demo failed:[/]")
        say(str(error))
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130


def run(models: list[Model], *, keep: bool) -> int:
    for model in models:
        pack(model)
    kept = failed = False
    interpreters = {"INTERPOOL_INTERPRETERS": str(os.cpu_count() or 1)}
    server = Server(environment=interpreters, prefix="ip-demo-", store=STORE)
    try:
        with step("starting TorchServe, whose workers will be interpool's"):
            server.start()
        for model in models:
            register(server, model)
        ask(server, models)
        compare(models)
        show_answers(models)
        show_processes(server)
        show_pool(server)
        show_curl(server, models)
        failed = not all(each <= TOLERANCE for model in models for each in model.differences())
        if keep and not failed:
            kept = True
            show_kept(server)
    except BaseException:
        failed = True
        raise
    finally:
        if not kept:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left behind by impatience
            with step("stopping what was started"):
                server.leave(keep_logs=failed)
    if failed:
        console.print("[red]Some answers differ from the ordinary Python process's.[/]")
        return 1
    console.print("[green]All answers equal the ordinary Python process's.[/]")
    return 0


# ---- steps ----------------------------------------------------------------------------------


def pack(model: Model) -> None:
    """Write model_store/NAME.ptpkg and, with the stock archiver, model_store/NAME.mar."""
    package = STORE / f"{model.name}.ptpkg"
    recipe = STORE / model.name
    with step(f"packing {model.name}"):
        pack = [BIN / "interpool", "pack", "project.factory:build", "--root", recipe, "-o", package, "--json"]
        report = json.loads(command(pack))
        handler = command([BIN / "interpool", "handler"]).strip()
        command(
            [BIN / "torch-model-archiver", "--model-name", model.name, "--version", "1.0",
             "--serialized-file", package, "--handler", handler, "--export-path", STORE, "--force"]
        )  # fmt: skip
    inside = [name for name, done in report["modules"].items() if done["action"] == "intern"]
    needs = ", ".join(f"{each['distribution']} {each['version']}" for each in report["externs"])
    say(f"    in the archive: {', '.join(inside)}")
    say(f"    from the server: {needs}")


def register(server: Server, model: Model) -> None:
    """Register the .mar through the management API, with several workers."""
    with step(f"registering {model.name} with {WORKERS} workers over REST"):
        server.call(server.register_url(model, batch_size=4, max_batch_delay=10))


def ask(server: Server, models: list[Model]) -> None:
    """Send all requests of all models at once, and have the reference answer them too."""
    tasks = [(model, request) for pair in zip(*(m.requests for m in models), strict=True)
             for model, request in zip(models, pair, strict=True)]  # fmt: skip

    def send(task: tuple[Model, Request]) -> Any:
        model, request = task
        url = f"{server.inference}/predictions/{model.name}"
        return server.call(url, request.body, request.content_type)

    what = f"sending {len(tasks)} requests from {CLIENTS} clients at once"
    with step(what), ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(send, tasks))
    for (model, _), answer in zip(tasks, answers, strict=True):
        model.answers.append(answer)


def compare(models: list[Model]) -> None:
    """Have an ordinary Python process for each model answer the same requests."""
    for model in models:
        with step(f"asking an ordinary Python process that has {model.name}'s source"):
            requests = json.dumps([request.for_reference() for request in model.requests])
            reference = [sys.executable, "-P", ROOT / "scripts" / "reference.py", STORE / model.name]
            model.expected = json.loads(command(reference, requests))


# ---- what is shown --------------------------------------------------------------------------


def show_answers(models: list[Model]) -> None:
    table = Table("model", "request", "label", "score", "plain Python", title="some of the answers")
    for model in models:
        for request, answer, expected in zip(model.requests[:4], model.answers, model.expected, strict=False):
            label = answer["label"]
            right = f"{expected['label']} {expected['scores'].get(label, math.nan):.6f}"
            table.add_row(model.name, request.shown, label, f"{answer['scores'][label]:.6f}", right)
        table.add_section()
    console.print(table)
    for model in models:
        worst = max(model.differences())
        say(f"{model.name}: {len(model.answers)} answers, largest difference {worst:.1e}")


def show_processes(server: Server) -> None:
    """One process holds the models; the workers before it are small."""
    table = Table("pid", "process", "memory (PSS)", title="what is running")
    for what, processes in {
        "TorchServe frontend (Java)": [server.frontend],
        "TorchServe worker (a shim before the pool host)": server.shims(),
        "pool host: all interpreters, all models": server.hosts(),
    }.items():
        for process in processes:
            table.add_row(str(process.pid), what, f"{process.memory_full_info().pss / 2**20:,.1f} MiB")
    console.print(table)


def show_pool(server: Server) -> None:
    """How many interpreters there are, and in which process."""
    for pool in server.pools().values():
        interpreters = pool["interpreters"]["interpreters"]
        say(
            f"{len(interpreters)} interpreters in one process, pid {pool['pid']}, serve "
            f"{len(pool['models'])} models to {len(pool['workers'])} TorchServe workers"
        )


def show_curl(server: Server, models: list[Model]) -> None:
    """What was done, as commands."""
    say("The same by hand:")
    for model in models:
        say("  " + shlex.join(["curl", "-sS", "-X", "POST", server.register_url(model)]))
    for model in models:
        say("  " + shlex.join(_predict_command(server, model)))
    url = f"{server.management}/models/{models[0].name}?min_worker=6&max_worker=6&synchronous=true"
    say("  " + shlex.join(["curl", "-sS", "-X", "PUT", url]))


def show_kept(server: Server) -> None:
    environment = " ".join(f"{name}={shlex.quote(value)}" for name, value in server.own_environment.items())
    interpool, torchserve = (shlex.quote(str(BIN / name)) for name in ("interpool", "torchserve"))
    say(f"The server goes on running; its logs are in {server.logs}.")
    say(f"  inference   {server.inference}")
    say(f"  management  {server.management}")
    say(f"  metrics     {server.metrics}/metrics")
    say(f"  curl -sS {server.metrics}/metrics")
    say(f"  {environment} {interpool} status")
    say(f"To stop it:\n  {environment} {torchserve} --stop")


def _predict_command(server: Server, model: Model) -> list[str]:
    sample = STORE / model.name / model.sample
    kind = "application/json" if sample.suffix == ".json" else "image/png"
    url = f"{server.inference}/predictions/{model.name}"
    return ["curl", "-sS", "-H", f"Content-Type: {kind}", "--data-binary", f"@{sample}", url]


# ---- helpers --------------------------------------------------------------------------------


def say(text: str) -> None:
    """A line as it is: not wrapped, so that it can be copied."""
    console.print(text, soft_wrap=True, markup=False)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Says what is being done, and afterwards how long it took."""
    started = time.monotonic()
    with console.status(what):
        yield
    console.print(f"[green]✓[/] {what} [dim]({time.monotonic() - started:.1f} s)[/]")


def command(words: list[str | Path], stdin: str | None = None) -> str:
    """A command's stdout; raises DemoError with its stderr if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, input=stdin, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoError(f"{shlex.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def _difference(found: dict[str, Any], expected: dict[str, Any]) -> float:
    if found.get("label") != expected["label"] or found["scores"].keys() != expected["scores"].keys():
        return math.inf
    scores: dict[str, float] = expected["scores"]
    apart = [abs(float(found["scores"][name]) - score) for name, score in scores.items()]
    return max(apart) if all(map(math.isfinite, apart)) else math.inf  # max may pass over a nan


def _leave(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _texts() -> list[Request]:
    words = (STORE / "bert/project/corpus.txt").read_text(encoding="utf-8").split()
    chance = random.Random(1)
    texts = [" ".join(chance.sample(words, chance.randint(3, 14))) for _ in range(REQUESTS)]
    texts[0] = json.loads((STORE / "bert/sample.json").read_text(encoding="utf-8"))["text"]
    return [
        Request("application/json", json.dumps({"text": text}).encode(), text[:28])
        if number % 2 == 0
        else Request("text/plain", text.encode(), text[:28])
        for number, text in enumerate(texts)
    ]


def _images() -> list[Request]:
    chance = random.Random(2)
    requests = [Request("image/png", (STORE / "convnet/sample.png").read_bytes(), "sample.png")]
    for number in range(1, REQUESTS):
        scale = chance.random()
        image = [
            [[round(chance.random() * scale, 3) for _ in range(32)] for _ in range(32)] for _ in range(3)
        ]
        requests.append(Request("application/json", json.dumps({"image": image}).encode(), f"image {number}"))
    return requests


if __name__ == "__main__":
    sys.exit(main())
