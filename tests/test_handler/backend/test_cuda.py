"""The GPU of TorchServe's load command, and models that ask for one: as in TorchServe's own worker.

As far as it goes without a device; builds of torch with CUDA and without.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import otf
import pytest
import torch
from extracted import METRICS, extracted, token
from interpool_testing import Code, printed
from proving import build_archive

from interpool.handler.host.service_entry import SERVICE_FUNCTION, SERVICE_MODULE
from interpool.handler.worker_reports import Report
from interpool.native import InterpreterSession

without_a_device = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")

GPUS = [-1, 0, 7]  # as numbers in the command; TorchServe writes the first for a worker without one
HANDLER = """
import torch
from ts.torch_handler.base_handler import BaseHandler

class Handler(BaseHandler):
    def initialize(self, context):
        self.gpu = context.system_properties["gpu_id"]
        {load}

    def handle(self, data, context):
        {call}
        return [str([self.gpu, self.map_location, str(self.device), str(torch.zeros(1).device)])] * len(data)
"""
AS_BASE = "super().initialize(context)"
# How handlers insist on one: while they are loaded, or later.
DEMANDS = {
    "cuda()": ("self.weight = torch.ones(1).cuda()", ""),
    "to": ("self.net = torch.nn.Linear(1, 1).to(f'cuda:{self.gpu}')", ""),
    "set_device": ("torch.cuda.set_device(self.gpu)", ""),
    "torch.load": ("torch.save(torch.ones(1), 'w.pt'); torch.load('w.pt', map_location='cuda')", ""),
    "in the call": (AS_BASE, "torch.ones(1).cuda()"),
    "by default, in the call": (AS_BASE, "torch.set_default_device('cuda')"),
}

NET = """
import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(1, 1)
"""
BATCH = otf.predict(b"x")
# TorchServe's own worker, for each of the directories that are given.
STOCK = """
import contextlib, io, json, logging, os, sys
from ts.model_service_worker import TorchModelServiceWorker
from ts.protocol.otf_message_handler import retrieve_msg

class Connection(io.BytesIO):
    recv = io.BytesIO.read

logging.disable()
answers = []
for directory, load, batch in json.loads(sys.argv[2]):
    os.chdir(directory)
    for name in ("handler", "net"):
        sys.modules.pop(name, None)
    sys.path.insert(0, directory)
    worker = TorchModelServiceWorker("tcp", None, "127.0.0.1", 0, sys.argv[1])
    worker.sock.close()
    answer = [500, ""]  # of a worker that ends, as its registration is answered
    with contextlib.suppress(Exception):
        service, _, code = worker.load_model(retrieve_msg(Connection(bytes.fromhex(load)))[1])
        answer = [code, ""]
        if service is not None:
            service.set_cl_socket(None)
            answer[1] = bytes(service.predict(retrieve_msg(Connection(bytes.fromhex(batch)))[1])).hex()
    sys.path.remove(directory)
    answers.append(answer)
print(json.dumps(answers))
"""


class Served:
    """A model's directory, as one worker's interpreter is asked for it."""

    def __init__(self, directory: Path, *, ordinary: bool) -> None:
        self.directory = directory
        self.ordinary = ordinary
        model = (
            {"handler": "handler.py", "modelFile": "net.py"} if ordinary else {"serializedFile": "m.ptpkg"}
        )
        extracted(directory, **model)

    def load_command(self, gpu: int) -> bytes:
        handler = "handler.py" if self.ordinary else "interpool_handler.py"
        return otf.load("m", str(self.directory), handler=handler, gpu=gpu)

    def ask(self, session: InterpreterSession, gpu: int, frame: bytes = b"") -> tuple[int, bytes, list[str]]:
        """The reply to a frame, or to the load command, and what else the host hears of it."""
        command = self.load_command(gpu)
        host, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with host, inside, (self.directory / "log").open("ab") as log:
            worker = token(log.fileno(), ordinary=self.ordinary, own_directory=True, reports=inside.fileno())
            service = session.global_(SERVICE_MODULE, SERVICE_FUNCTION)(worker.as_text(), command)
            reply = session.global_("builtins", "bytes")(service(frame or command)[0]).to_value()
            host.setblocking(False)
            said = []
            try:
                while True:
                    report = Report.receive(host)
                    said.append(f"{report.kind}: {report.reason}")
            except BlockingIOError:
                pass
        return int.from_bytes(reply[:4], "big"), reply, said


def _ordinary(directory: Path, load: str, call: str) -> Served:
    served = Served(directory, ordinary=True)
    (directory / "handler.py").write_text(HANDLER.format(load=load, call=call or "pass"))
    (directory / "net.py").write_text(NET)
    return served


def _in_stock_workers(asked: list[tuple[Served, int]]) -> list[tuple[int, str]]:
    """The load's status, and the answer to a request, in a process that is a worker for each in turn."""
    arguments = [(str(each.directory), each.load_command(gpu).hex(), BATCH.hex()) for each, gpu in asked]
    said = printed(STOCK, METRICS, json.dumps(arguments))
    return [tuple(answer) for answer in json.loads(said.splitlines()[-1])]


def _in_the_pool(session: InterpreterSession, served: Served, gpu: int) -> tuple[int, str]:
    code, _, _ = served.ask(session, gpu)
    return code, served.ask(session, gpu, BATCH)[1].hex() if code == 200 else ""


def _imported(session: InterpreterSession) -> tuple[int, int]:
    """How many models the interpreter has, and how many archives are in its memory."""
    source = """
import gc
from interpool.handler.backend import loaded_models
gc.collect()
archives = sum(type(each).__name__ == "HermeticImporter" for each in gc.get_objects())
found = len(loaded_models.loaded), archives
"""
    found: tuple[int, int] = Code(session, source)["found"].to_value()
    return found


@pytest.mark.long
def test_a_handler_finds_its_gpu_and_ends_without_one_as_in_torchserves_own_worker(
    session: InterpreterSession, tmp_path: Path
) -> None:
    base = _ordinary(tmp_path / "base", AS_BASE, "")
    asked = [(base, gpu) for gpu in GPUS]
    if not torch.cuda.is_available():
        asked += [(_ordinary(tmp_path / name, *how), 0) for name, how in DEMANDS.items()]
    pool = [_in_the_pool(session, *each) for each in asked]
    assert pool == _in_stock_workers(asked)
    assert b"[None, 'cpu', 'cpu', 'cpu']" in bytes.fromhex(pool[0][1])
    if not torch.cuda.is_available():
        assert b"[7, 'cpu', 'cpu', 'cpu']" in bytes.fromhex(pool[2][1])
        assert {code for code, _ in pool} == {200, 500, 507}


@without_a_device
@pytest.mark.parametrize("entry", ["NeedsGpu", "DefaultsToGpu"])
def test_a_packed_model_that_cannot_do_without_a_gpu_says_why_and_leaves_nothing(
    session: InterpreterSession, tmp_path: Path, entry: str
) -> None:
    served = Served(tmp_path / "m", ordinary=False)
    build_archive(served.directory / "m.ptpkg", tmp_path / "canary", entry=entry)
    before = _imported(session)
    with pytest.raises((RuntimeError, AssertionError)) as here:
        torch.ones(1, device="cuda")
    for frame in (b"", BATCH):
        code, reply, said = served.ask(session, 0, frame)
        assert code == 500
        why = f"Model 'm' could not be loaded: {type(here.value).__name__}: {here.value}"
        assert why.encode() in reply
        assert [line.partition(":")[0] for line in said] == ["load_failed", *["not_started"] * (not frame)]
        assert str(here.value) in said[0]
    assert str(here.value) in (served.directory / "log").read_text()
    assert _imported(session) == before
    neighbour = _ordinary(tmp_path / "neighbour", AS_BASE, "")
    assert b"[None, 'cpu', 'cpu', 'cpu']" in neighbour.ask(session, -1, BATCH)[1]


def test_a_packed_model_may_take_the_gpu_that_is_there_or_the_cpu(
    session: InterpreterSession, tmp_path: Path
) -> None:
    served = Served(tmp_path / "m", ordinary=False)
    build_archive(served.directory / "m.ptpkg", tmp_path / "canary", entry="TakesGpu")
    for gpu in (-1, 0):
        expected = f"cuda:{gpu}" if gpu >= 0 and torch.cuda.is_available() else "cpu"
        assert f"{None if gpu < 0 else gpu} {expected}".encode() in served.ask(session, gpu, BATCH)[1]


def test_an_archive_with_weights_of_a_gpu_that_is_not_here_says_so(
    session: InterpreterSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, before = Served(tmp_path / "m", ordinary=False), _imported(session)
    monkeypatch.setattr("torch.package.package_exporter.location_tag", lambda _storage: "cuda:99")
    build_archive(served.directory / "m.ptpkg", tmp_path / "canary")
    code, reply, said = served.ask(session, 0)
    assert code == 400  # the archive's fault
    assert b"m.ptpkg: its weights were packed on cuda:99, which torch does not find here" in reply
    assert [line.partition(":")[0] for line in said] == ["load_failed", "not_started"]
    assert _imported(session) == before


def test_a_default_device_that_a_model_chose_when_it_was_loaded_stays_its_own(
    session: InterpreterSession, tmp_path: Path
) -> None:
    chosen = _ordinary(tmp_path / "chosen", AS_BASE + "; torch.set_default_device('meta')", "")
    failed = _ordinary(tmp_path / "failed", "torch.set_default_device('meta'); raise ValueError", "")
    neighbour = _ordinary(tmp_path / "neighbour", AS_BASE, "")
    for _ in range(2):
        assert b"'cpu', 'cpu', 'meta']" in chosen.ask(session, -1, BATCH)[1]
        assert failed.ask(session, -1)[0] == 500
        assert b"'cpu', 'cpu', 'cpu']" in neighbour.ask(session, -1, BATCH)[1]


# How a handler meets what CUDA says: it raises that, or something else because of it, or while it is loaded.
MEETS = {
    "in a call": ("", "raise lost(number)"),
    "as another's cause": ("", "raise ValueError('no answer') from lost(number)"),
    "while another is handled": (
        "",
        "\n            try: raise lost(number)\n            except RuntimeError: raise KeyError('no answer')",
    ),
}
LOSES = """
import torch
from ts.torch_handler.base_handler import BaseHandler

def lost(number):
    error = torch.AcceleratorError(f"CUDA error: number {{number}}\\nCompile with more")
    error.error_code = number
    return error

class Handler(BaseHandler):
    def initialize(self, context):
        {load}
        super().initialize(context)

    def handle(self, data, context):
        number = int(data[0]["body"])
        if number: {call}
        return ["served"] * len(data)
"""


@pytest.fixture
def found_again(session: InterpreterSession) -> Iterator[None]:
    """An interpreter has no other process to go on in: it forgets that its GPU is lost."""
    yield
    Code(session, "import sys; sys.modules['interpool.handler.backend.lost_devices']._lost = ''")


def _body(number: int) -> bytes:
    return otf.predict(str(number).encode())


@pytest.mark.usefixtures("found_again")
@pytest.mark.parametrize("how", MEETS)
def test_an_error_that_says_that_the_gpu_is_lost_is_reported_with_the_answer(
    session: InterpreterSession, tmp_path: Path, how: str
) -> None:
    load, call = MEETS[how]
    served = Served(tmp_path / "m", ordinary=True)
    (served.directory / "handler.py").write_text(LOSES.format(load=load or "pass", call=call))
    (served.directory / "net.py").write_text(NET)
    assert served.ask(session, 0)[0] == 200
    for passing in (0, 2, 209):  # nothing is wrong; a lack of memory; a kernel for another GPU
        code, _, said = served.ask(session, 0, _body(passing))
        assert (code == 200) == (passing == 0)
        assert said == []
    code, _, said = served.ask(session, 0, _body(710))
    assert code in (503, 507)  # TorchServe's own
    assert said == ["device_lost: this process can use its GPU no more: CUDA error: number 710"]


@pytest.mark.usefixtures("found_again")
def test_a_load_that_finds_the_gpu_lost_says_so(session: InterpreterSession, tmp_path: Path) -> None:
    served = Served(tmp_path / "m", ordinary=True)
    (served.directory / "handler.py").write_text(LOSES.format(load="raise lost(700)", call="pass"))
    (served.directory / "net.py").write_text(NET)
    code, _, said = served.ask(session, 0)
    assert code == 507
    kinds = [line.partition(":")[0] for line in said]
    assert kinds == ["load_failed", "not_started", "device_lost"]


@pytest.mark.usefixtures("found_again")
def test_a_request_of_a_batch_that_finds_the_gpu_lost_says_so(
    session: InterpreterSession, tmp_path: Path
) -> None:
    served = Served(tmp_path / "m", ordinary=False)
    build_archive(served.directory / "m.ptpkg", tmp_path / "canary", entry="LosesGpu")
    assert served.ask(session, 0)[0] == 200
    code, reply, said = served.ask(session, 0, otf.predict(b"0", b"710"))
    assert code == 200
    assert b"served" in reply
    assert b"AcceleratorError: CUDA error: number 710" in reply
    assert said == ["device_lost: this process can use its GPU no more: CUDA error: number 710"]
