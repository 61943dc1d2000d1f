"""What a private interpreter answers to TorchServe's frames, without a TorchServe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import otf
import pytest
from extracted import extracted, token
from proving import build_archive

from interpool.handler.host.service_entry import SERVICE_FUNCTION, SERVICE_MODULE
from interpool.handler.signature_policy import SignaturePolicy
from interpool.native import InterpreterSession, PyObj


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """Holds the name of what has run of an archive."""
    return tmp_path / "canary"


class Served:
    """An extracted .mar with a packed ``entry``, as one worker's interpreter is asked for it."""

    def __init__(self, directory: Path, canary: Path, entry: str, **token: Any) -> None:
        self.directory = directory / entry
        extracted(self.directory, serializedFile="m.ptpkg")
        build_archive(self.directory / "m.ptpkg", canary, entry=entry)
        self.token = token
        self._canary = canary

    def loaded(self, session: InterpreterSession) -> int:
        """How many models of this archive the interpreter has."""
        models = "__import__('sys').modules['interpool.handler.backend.loaded_models'].loaded.values()"
        count = f"sum(model.directory == {str(self.directory)!r} for model in {models})"
        return int(session.global_("builtins", "eval")(count, {}).to_value())

    def in_memory(self, session: InterpreterSession) -> int:
        """How many archives of this name are open in the interpreter, in use or not."""
        package = str(self.directory / "m.ptpkg")
        here = f"type(o).__name__ == 'HermeticImporter' and o.filename == {package!r}"
        count = f"sum(1 for o in __import__('gc').get_objects() if {here})"
        return int(session.global_("builtins", "eval")(count, {}).to_value())

    def runs(self) -> int:
        """How often the archive's source has run."""
        return self._canary.read_text().count("source")

    def warm(self, session: InterpreterSession) -> bool:
        """Have it loaded ahead."""
        command = self._load_command()
        with open(os.devnull, "wb") as log:
            worker = token(log.fileno(), **self.token).as_text()
            return bool(session.global_(SERVICE_MODULE, "warm")(worker, command).to_value())

    def _load_command(self, **load: str) -> bytes:
        return otf.load("m", str(self.directory), **{"handler": "interpool_handler.py", **load})

    @contextmanager
    def connected(self, session: InterpreterSession, **load: str) -> Iterator[PyObj]:
        """What answers a connection's frames."""
        with open(os.devnull, "wb") as log:
            worker = token(log.fileno(), **self.token).as_text()
            yield session.global_(SERVICE_MODULE, SERVICE_FUNCTION)(worker, self._load_command(**load))

    def ask(self, session: InterpreterSession, frame: bytes = b"", **load: str) -> tuple[int, bytes, bool]:
        """The reply's status and rest, and whether the connection stays open; of the load without a frame."""
        command = self._load_command(**load)
        with self.connected(session, **load) as service:
            answer = service(frame or command)
            reply = session.global_("builtins", "bytes")(answer[0]).to_value()
            stays = answer[1].to_value()
        return int.from_bytes(reply[:4], "big"), reply[4:], stays


@pytest.mark.long
def test_a_model_is_loaded_by_its_command_or_by_the_first_batch(
    session: InterpreterSession, tmp_path: Path, canary: Path
) -> None:
    served = Served(tmp_path, canary, "Handler")
    code, reply, stays = served.ask(session, otf.predict(b"x", b"y"))
    assert (code, stays) == (200, True)
    assert reply.count(str(served.directory).encode()) == 2
    code, reply, stays = served.ask(session)
    assert (code, stays) == (200, True)
    assert b"loaded model m" in reply
    assert canary.read_text() == "source\n"  # once for both


@pytest.mark.parametrize(
    ("entry", "gpu", "logged"), [("Model", 0, True), ("Model", -1, False), ("Handler", 0, False)]
)
def test_the_log_says_that_a_model_without_a_handler_leaves_its_gpu_unused(
    session: InterpreterSession, tmp_path: Path, canary: Path, entry: str, gpu: int, logged: bool
) -> None:
    served, log = Served(tmp_path, canary, entry), tmp_path / "log"
    command = otf.load("m", str(served.directory), handler="interpool_handler.py", gpu=gpu)
    with log.open("wb") as written:
        worker = token(written.fileno(), **served.token).as_text()
        service = session.global_(SERVICE_MODULE, SERVICE_FUNCTION)(worker, command)
        answer = session.global_("builtins", "bytes")(service(command)[0]).to_value()
    assert b"loaded model m" in answer
    line = "TorchServe gave this worker GPU 0, which the model, without a handler, leaves unused: "
    assert (line in log.read_text()) == logged


def _ask_in_state(served: Served, session: InterpreterSession, state: int, **token: Any) -> tuple[bool, int]:
    """Whether a batch was answered, and how often the archive's source has run."""
    served.token.update(state=state, **token)
    _, reply, stays = served.ask(session, otf.predict(b"x"))
    return stays and str(served.directory).encode() in reply, served.runs()


def test_a_newer_state_has_the_model_loaded_anew_and_an_older_one_is_not_served(
    session: InterpreterSession, tmp_path: Path, canary: Path
) -> None:
    served = Served(tmp_path, canary, "Handler")
    assert _ask_in_state(served, session, 1) == (True, 1)
    assert _ask_in_state(served, session, 1) == (True, 1)
    assert _ask_in_state(served, session, 2) == (True, 2)
    assert served.in_memory(session) == 1
    assert _ask_in_state(served, session, 1) == (False, 2)  # its worker has ended
    assert _ask_in_state(served, session, 2) == (True, 2)


def test_models_in_states_that_ended_are_unloaded_by_the_next_sweep(
    session: InterpreterSession, tmp_path: Path, canary: Path
) -> None:
    served = Served(tmp_path, canary, "Handler")
    assert _ask_in_state(served, session, 11) == (True, 1)
    session.global_(SERVICE_MODULE, "end_states")("10 11")
    assert served.loaded(session) == 1
    session.global_(SERVICE_MODULE, "sweep")()
    assert served.loaded(session) == 0
    assert _ask_in_state(served, session, 12) == (True, 2)


def test_workers_with_states_of_their_own_have_objects_of_their_own(
    session: InterpreterSession, tmp_path: Path, canary: Path
) -> None:
    """The archive's modules are the interpreter's, and stay while one of these workers does."""
    served = Served(tmp_path, canary, "Handler")
    for state in (21, 22, 21, 22):
        assert _ask_in_state(served, session, state, own_state=True) == (True, 1)
    assert served.loaded(session) == 2
    session.global_(SERVICE_MODULE, "end_states")("21")
    session.global_(SERVICE_MODULE, "sweep")()
    assert _ask_in_state(served, session, 22, own_state=True) == (True, 1)
    assert served.loaded(session) == 1


def test_a_model_is_loaded_ahead_and_dropped(
    session: InterpreterSession, tmp_path: Path, canary: Path
) -> None:
    served = Served(tmp_path, canary, "Handler")
    assert served.warm(session)
    assert canary.read_text() == "source\n"
    assert served.ask(session, otf.predict(b"x"))[0] == 200
    assert canary.read_text() == "source\n"
    session.global_(SERVICE_MODULE, "drop")(str(tmp_path))  # another one's
    assert served.ask(session, otf.predict(b"x"))[0] == 200
    assert canary.read_text() == "source\n"
    session.global_(SERVICE_MODULE, "drop")(str(served.directory))
    assert served.ask(session, otf.predict(b"x"))[0] == 200
    assert canary.read_text() == "source\nsource\n"


def test_a_model_that_is_dropped_leaves_memory_though_its_workers_connections_live(
    session: InterpreterSession, tmp_path: Path, canary: Path
) -> None:
    served = Served(tmp_path, canary, "Handler")
    with served.connected(session) as service:
        assert service(otf.predict(b"x"))[1].to_value()
        session.global_(SERVICE_MODULE, "drop")(str(served.directory))
        assert served.in_memory(session) == 0
        assert service(otf.predict(b"x"))[1].to_value()
        assert served.runs() == 2


def test_the_handler_file_beside_the_package_is_not_run(
    session: InterpreterSession, tmp_path: Path, canary: Path
) -> None:
    served = Served(tmp_path, canary, "Handler")
    sing = f"open({str(canary)!r}, 'a').write('tampered')"
    (served.directory / "interpool_handler.py").write_text(sing)
    assert served.ask(session, otf.predict(b"x"), handler="interpool_handler.py:sing")[0] == 200
    assert canary.read_text() == "source\n"


def test_a_handle_that_initialize_replaces_is_not_called_as_in_torchserve(
    session: InterpreterSession, tmp_path: Path, canary: Path
) -> None:
    """TorchServe takes it before: so MicroBatching that is set up there has no effect in either."""
    code, reply, _ = Served(tmp_path, canary, "Replaces").ask(session, otf.predict(b"x"))
    assert code == 200
    assert b"replaced" not in reply
    assert b'"name": "m"' in reply


@pytest.mark.parametrize(
    ("load", "token", "code", "words"),
    [
        ({"envelope": "wrong"}, {}, 500, b"No module named 'ts.torch_handler.request_envelope.wrong'"),
        ({"handler": "other.py"}, {}, 500, b"registered with the handler 'other.py'"),
        ({}, {"refusal": "unknown setting"}, 400, b"unknown setting"),
        ({}, {"policy": SignaturePolicy(["/nowhere.pem"])}, 400, b"[unsigned]"),
        ({}, {"policy": SignaturePolicy(self_test=True)}, 400, b"[no-self-test]"),
    ],
)
def test_a_model_that_cannot_be_loaded_says_why_and_runs_nothing(
    session: InterpreterSession,
    tmp_path: Path,
    canary: Path,
    load: dict[str, str],
    token: dict[str, Any],
    code: int,
    words: bytes,
) -> None:
    served = Served(tmp_path, canary, "Model", **token)
    status, reply, stays = served.ask(session, **load)
    assert (status, stays) == (code, False)
    assert b"Model 'm' could not be loaded: " in reply
    assert words in reply
    status, reply, stays = served.ask(session, otf.predict(b"x"), **load)
    assert (status, stays) == (code, True)
    assert words in reply
    assert not canary.exists()


@pytest.mark.parametrize("tracebacks", [True, False])
def test_settings_are_what_the_host_read(
    session: InterpreterSession, tmp_path: Path, canary: Path, tracebacks: bool
) -> None:
    """Nothing in an interpreter reads them again."""
    served = Served(tmp_path, canary, "Model", tracebacks=tracebacks)
    frame = otf.predict(b"[1.0]").replace(
        otf.field("application/octet-stream"), otf.field("application/json")
    )
    _, reply, _ = served.ask(session, frame)
    assert b"raised RuntimeError" in reply
    assert (b"Traceback (most recent call last)" in reply) is tracebacks
    held = session.global_("builtins", "eval")("list(__import__('sys').modules)", {}).to_value()
    assert "interpool.handler.config" not in held


@pytest.mark.parametrize("manifest", ['{"model": null}', "{}", '{"model": {"serializedFile": null}}'])
def test_a_manifest_that_names_no_package_is_the_archives_fault(
    session: InterpreterSession, tmp_path: Path, canary: Path, manifest: str
) -> None:
    served = Served(tmp_path, canary, "Handler")
    (served.directory / "MAR-INF" / "MANIFEST.json").write_text(manifest)
    code, reply, stays = served.ask(session)
    assert (code, stays) == (400, False)
    assert b"the archive's manifest names no serializedFile" in reply
