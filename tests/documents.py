"""Runs the commands in a document as they stand there, in order, as a newcomer would paste them.

A copy of what they touch is made first, with other ports. So neither the checkout nor a server that already
runs on this machine is disturbed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from local_server import free_ports
from paths import ROOT
from stock_archiver import wrap
from waiting import wait_for

README = ROOT / "README.md"
BLOCK = re.compile(
    r"(<!-- shown, not run:[^\n]*-->\n)?^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
# What stands under a block that is run, or names what else printed it: lines of output, in their order.
SHOWN = re.compile(r"^(?:```|<!-- printed by ([^\n]*) -->)\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e-\d+)?")
HANDLER = """
import torch


class Handler:
    def initialize(self, context):
        wide = 1 << 18
        self.model = torch.nn.Sequential(torch.nn.Linear(4, wide), torch.nn.ReLU(), torch.nn.Linear(wide, 2))

    def handle(self, data, context):
        with torch.inference_mode():
            return [self.model(torch.tensor(row["body"])).tolist() for row in data]
"""
# TorchServe's defaults, written out: what the sample configuration leaves alone moves to other ports as well.
LISTENS_ON = """
inference_address=http://127.0.0.1:8080
management_address=http://127.0.0.1:8081
metrics_address=http://127.0.0.1:8082
grpc_inference_port=7070
grpc_management_port=7071
"""


@dataclass(frozen=True)
class Block:
    """One fenced block of a document that is to be run."""

    language: str
    code: str

    def as_shell(self) -> str:
        if self.language == "bash":
            return self.code
        return f"python - <<'END-OF-BLOCK'\n{self.code}END-OF-BLOCK\n"


def blocks(document: Path) -> list[Block]:
    """The document's blocks that are to be run."""
    text = document.read_text(encoding="utf-8")
    return [Block(language, code) for shown, language, code in BLOCK.findall(text) if not shown]


def shown_lines(document: Path, printed_by: str = "") -> list[str]:
    """The lines of output that a document shows: of its own blocks, or of the command that printed them."""
    text = document.read_text(encoding="utf-8")
    return [line for by, lines in SHOWN.findall(text) if by == printed_by for line in lines.splitlines()]


def assert_printed(lines: list[str], output: str) -> None:
    """Each line is one of the output's, with other numbers; ``…`` stands for anything."""
    for line in lines:
        pattern = NUMBER.sub("0", line.strip())
        words = ".*".join(map(re.escape, pattern.split("…"))).replace("0", NUMBER.pattern)
        assert re.search(rf"^\s*{words}\s*$", output, re.MULTILINE), f"{line!r} is not in\n{output}"


def processes_of(directory: Path) -> list[psutil.Process]:
    """Every process that was started, directly or not, with ``directory`` as its TEMP."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TEMP") == str(directory) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def make_model_archive(store: Path) -> None:
    """``model.mar``, which a reader has: a handler with some megabytes of weights."""
    handler = store.parent / "handler.py"
    handler.write_text(HANDLER)
    wrap("model", handler, store)


@contextmanager
def checkout() -> Iterator[Path]:
    """A copy of what the commands read and write, in a short path: sockets live under it."""
    directory = Path(tempfile.mkdtemp(prefix="ip-"))
    try:
        shutil.copytree(ROOT / "configs", directory / "configs")
        (directory / "model_store").mkdir()
        make_model_archive(directory / "model_store")
        (directory / "build").mkdir()
        (directory / "tmp").mkdir()
        (directory / ".venv").symlink_to(sys.prefix)
        # This test runs on an installed package: set-up is done, and would only repeat itself.
        (directory / "scripts").mkdir()
        (directory / "scripts" / "setup").write_text("#!/bin/sh\n")
        (directory / "scripts" / "setup").chmod(0o755)
        yield directory
    finally:
        for process in processes_of(directory / "tmp"):
            process.kill()
        shutil.rmtree(directory)


def run_document(
    document: Path, directory: Path, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run all blocks in one shell that stops at the first failure: its exit status, and what was printed.

    Args:
        document: the page.
        directory: where it is run; see ``checkout``.
        environment: where its commands are found; by default this one, with interpool installed.
    """
    if environment is None:
        environment = {**os.environ, "PATH": os.pathsep.join([f"{sys.prefix}/bin", os.environ["PATH"]])}
    config = directory / "configs" / "config.properties"
    # As written, but an HTTP error counts as a failure too.
    script = 'set -euo pipefail\ncurl() { command curl --fail-with-body "$@"; }\n'
    for number, block in enumerate(blocks(document), start=1):
        script += f"echo '== block {number}'\n{block.as_shell()}"
    settings = config.read_text() + LISTENS_ON
    ports = ports_in(script + settings)
    listens_on = LISTENS_ON
    for port, free in zip(ports, free_ports(len(ports)), strict=True):
        script, settings, listens_on = (
            re.sub(rf"\b{port}\b", str(free), text) for text in (script, settings, listens_on)
        )
    config.write_text(settings)

    temporary = str(directory / "tmp")
    own = {"TMPDIR": temporary, "TEMP": temporary, "INTERPOOL_RUNTIME_DIR": f"{temporary}/run"}
    if "--ts-config" not in script:  # for a page that gives none
        (directory / "ports.properties").write_text(listens_on)
        own["TS_CONFIG_FILE"] = str(directory / "ports.properties")
    output = directory / "output"
    with output.open("wb") as stream:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=directory,
            env={**environment, **own},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = shell.wait(timeout=500)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            status = shell.wait()
    return status, output.read_text(errors="replace")


def ports_in(text: str) -> set[str]:
    """The ports that commands and a configuration name."""
    return set(re.findall(r"(?:\b127\.0\.0\.1:|port=)(\d+)", text))


def plain_answer(folder: Path, code: str) -> Any:
    """What an ordinary Python, without interpool, prints as JSON."""
    printed = subprocess.run(
        [sys.executable, "-c", f"import json; {code}"], cwd=folder, capture_output=True, check=True, text=True
    )
    return json.loads(printed.stdout)


def assert_that_the_readmes_model_answers(directory: Path, output: str) -> None:
    """What its commands printed, over REST and from Python, is what an ordinary Python answers."""
    request = re.search(r'-d "(\[.*?\])"', "".join(block.code for block in blocks(README)))
    assert request
    asked = f"import torch, shop.factory as f; print(f.build()(torch.tensor({request[1]})).tolist())"
    expected = plain_answer(directory / "first", asked)
    served = output.partition("registered with")[2]
    by_rest = [json.loads(text) for text in re.findall(r"(?<!tensor\()\[\s*-?\d[^\[\]]*\]", served)]
    in_python = [json.loads(text) for text in re.findall(r"tensor\((\[[^\[\]]*\])", output)]
    assert by_rest == [pytest.approx(expected, abs=1e-5)], output
    assert in_python == [pytest.approx(expected, abs=1e-4)], output


def wait_for_the_end(directory: Path) -> None:
    """Wait until nothing that the commands started runs any more: they stop it themselves."""

    def left() -> list[psutil.Process]:
        return processes_of(directory / "tmp")

    wait_for(lambda: not left(), lambda: f"the end of {[process.cmdline() for process in left()]}", pause=0.2)
