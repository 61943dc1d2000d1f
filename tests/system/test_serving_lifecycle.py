"""Bad days: hosts and shims that die, servers that stop, pools that cannot start."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clients import Load
from local_server import INTERPOOL, TorchServe, command_of, torchserve
from paths import ROOT
from system.conftest import Mar, wait_for_log
from waiting import wait_for

pytestmark = pytest.mark.long


def _register(server: TorchServe, mar: Mar, name: str = "inside", **options: object) -> None:
    config = str(options.pop("config", ""))
    answer = server.register(mar(server, name, "inside", config=config), **options)
    assert answer.status == 200, answer.text + server.model_log()[-3000:]


def _is_answered(server: TorchServe, name: str = "inside") -> bool:
    return server.predict(name, {}).status == 200


def _worker_pids(server: TorchServe) -> set[int]:
    return {worker["pid"] for worker in server.describe("inside")[0]["workers"]}


def _are_new(server: TorchServe, old: set[int]) -> bool:
    """Whether as many other workers are ready as there were."""
    ready = set(server.ready_workers("inside"))
    return len(ready) == len(old) and not ready & old


def test_killed_hosts_leave_nothing_behind(mar: Mar) -> None:
    with torchserve(environment={"INTERPOOL_INTERPRETERS": "1"}) as server:
        _register(server, mar, initial_workers=2)

        def counts() -> dict[str, object]:
            return {
                "processes": len(server.processes()),
                "sockets": server.sockets(),
                "runtime": sorted(
                    str(path.relative_to(server.runtime)) for path in server.runtime.rglob("*")
                ),
                "logs": sorted(path.name for path in server.logs.iterdir()),
                "host fds": [host.num_fds() for host in server.hosts()],
                "tmp": len(list(server.tmp.rglob("*"))),
            }

        # TorchServe runs a program that measures the machine when it starts, and every minute.
        wait_for(
            lambda: len(server.processes()) == 4,
            lambda: f"nothing but the server, its host and its shims: {server.processes()}",
            pause=0.1,
        )
        before = counts()
        frontend_fds = server.frontend.num_fds()
        killed: set[int] = set()
        with Load(lambda: server.predict("inside", {"sleep": 0.02}).status, clients=2) as clients:
            for _ in range(2):
                old = _worker_pids(server)
                killed.add(server.kill_host())
                wait_for(lambda old=old: _are_new(server, old), "two new workers")
                seen = clients.answers["200"]
                wait_for(lambda seen=seen: clients.answers["200"] > seen, "a correct answer again")
        assert len(killed) == 2
        assert clients.answers.keys() <= {"200", "500", "503"}
        assert clients.failures == []
        wait_for(
            lambda: counts() == before,
            lambda: f"the counts {before}, which are {counts()}; the host's log: {server.host_log()}",
            pause=0.1,
        )
        wait_for(
            lambda: server.frontend.num_fds() <= frontend_fds + 4,
            lambda: f"{frontend_fds} descriptors in TorchServe, which are {server.frontend.num_fds()}",
        )


def test_serve_says_where_it_listens_has_a_host_ready_and_leaves_nothing_when_it_stops(mar: Mar) -> None:
    server = TorchServe()
    status, said = _serve(server)
    try:
        assert status == 0, said
        assert f"inference {server.inference}, management {server.management}" in said
        assert server.get("/ping").status == 200  # at once
        wait_for(lambda: "all of 2 interpreters are ready" in server.host_log(), "the pool, without a model")
        (host,) = server.hosts()
        _register(server, mar)
        assert server.predict("inside", {}).json["pid"] == host.pid
        server.wait_for_all_interpreters()  # and the model is loaded in the other one without a request
        assert server.host_log().count("interpool.host: pool 'default'") == 1
    finally:
        server.stop()
    assert server.processes() == []
    assert list(server.runtime.iterdir()) == []
    assert server.sockets() == []
    shutil.rmtree(server.root)


def test_a_host_that_the_first_worker_started_outlives_a_killed_shim(mar: Mar) -> None:
    with torchserve(environment={"INTERPOOL_INTERPRETERS": "1", "INTERPOOL_START_AHEAD": "0"}) as server:
        assert not any("interpool.handler.frontend.ahead" in command_of(each) for each in server.processes())
        assert server.hosts() == []
        _register(server, mar)
        (host,) = server.hosts()
        fds = host.num_fds()
        (shim,) = server.shims()
        shim.kill()
        wait_for(lambda: server.shims() not in ([], [shim]), "a new shim", pause=0.1)
        assert _is_answered(server)
        assert server.hosts() == [host]
        wait_for(lambda: host.num_fds() <= fds, "the host's descriptors")


class _Printing(TorchServe):
    """A server all of whose logs are its standard output."""

    def _flags(self) -> list[str]:
        return [*super()._flags(), "--log-config", str(ROOT / "configs/log4j2-stdout.xml")]


def test_hosts_follow_torchserves_configuration_and_log_to_the_configured_place(mar: Mar) -> None:
    """A host that was started ahead gives way to one with the environment that workers have."""
    with _Printing(
        environment={"INTERPOOL_INTERPRETERS": "1", "INTERPOOL_LOG_TO": "stdout", "SECRET_X": "1"},
        properties={"decode_input_request": "false", "blacklist_env_vars": "SECRET.*"},
    ) as server:
        output = server.root / "start.log"
        wait_for(lambda: "all of 1 interpreters" in output.read_text(), output.read_text)
        (ahead,) = server.hosts()
        answer = server.register(mar(server, "shown", "shown"))
        assert answer.status == 200, answer.text + output.read_text()[-3000:]
        found = server.predict("shown", {}).json
        assert found.pop("pid") != ahead.pid
        assert found == {"body": "bytearray", "secret": None}
        wait_for(lambda: len(server.hosts()) == 1, "the end of the host that was started ahead", pause=0.1)
        server.stop()
        said = output.read_text()
        assert "INFO interpool.host: leaving: TorchServe is gone" in said
        assert "MODEL_LOG - Backend received inference at: " in said
        assert [path for path in server.logs.rglob("*") if path.is_file()] == []
        assert [*server.runtime.rglob("*.log")] == []


def test_a_killed_server_takes_host_and_shims_along(mar: Mar) -> None:
    with torchserve() as server:
        _register(server, mar, initial_workers=2)
        server.frontend.send_signal(signal.SIGKILL)
        wait_for(lambda: server.hosts() == [], "the host to end", pause=0.1)
        wait_for(lambda: server.shims() == [], "the shims to end", pause=0.1)
        assert list(server.runtime.iterdir()) == []
        assert server.sockets() == []


def test_an_idle_host_leaves_and_comes_back(mar: Mar) -> None:
    with torchserve(environment={"INTERPOOL_IDLE_EXIT_S": "1"}) as server:
        _register(server, mar)
        (first,) = server.hosts()
        assert server.scale("inside", 0).status == 200
        wait_for(lambda: server.hosts() == [], "the idle host to leave", pause=0.1)
        assert list(server.runtime.iterdir()) == []
        assert server.scale("inside", 1).status == 200
        (second,) = server.hosts()
        assert first.pid != second.pid
        assert _is_answered(server)


def test_models_of_different_pools_do_not_fall_together(mar: Mar) -> None:
    with torchserve() as server:
        _register(server, mar, "first")
        _register(server, mar, "second", config="interpool: {pool: own, interpreters: 1}\n")
        assert len(server.hosts()) == 2
        pids = {name: server.predict(name, {}).json["pid"] for name in ("first", "second")}
        assert len(set(pids.values())) == 2
        os.kill(pids["second"], signal.SIGKILL)
        assert server.predict("first", {}).json["pid"] == pids["first"]
        wait_for(lambda: len(server.hosts()) == 2, "the second pool's new host", pause=0.1)
        wait_for(lambda: _is_answered(server, "second"), "the second pool's answer")


@pytest.mark.parametrize("missing", ["java", "torchserve"])
def test_serve_says_what_is_absent(missing: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
    code = "from interpool.handler.cli import main; main()"
    if missing == "torchserve":
        (tmp_path / "java").touch(mode=0o755)
        code = f"import sys; sys.executable = {str(tmp_path / 'python')!r}; {code}"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "--model-store", "."],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 5
    assert "Traceback" not in done.stderr
    expected = {"java": "TorchServe needs Java", "torchserve": "pip install torchserve"}
    assert expected[missing] in done.stderr


def _serve(server: TorchServe) -> tuple[int, str]:
    """What `interpool serve` exits with and says, with the configuration of a server that is not started."""
    options = ["--ncs", "--model-store", str(server.store), "--ts-config", "config.properties"]
    said = server.root / "said"
    with said.open("w") as file:  # the server goes on writing there
        done = subprocess.run(
            [*INTERPOOL, "serve", *options],
            cwd=server.root,
            env=server._environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
    return done.returncode, said.read_text()


def test_serve_says_why_the_server_does_not_serve() -> None:
    server = TorchServe()
    port = int(server.inference.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        status, said = _serve(server)
    assert status == 5, said
    assert said.startswith("interpool: starting TorchServe\n")
    assert "TorchServe ended before it served" in said
    assert "Address already in use" in said
    shutil.rmtree(server.root)


def _outcome(server: TorchServe, name: str, gate: Path, patience_s: float) -> str:
    """What a client meets whose call runs until the gate is there, and who waits for so long."""
    try:
        answer = server.predict(name, {"say": "here it is", "until": str(gate)}, timeout=patience_s)
    except TimeoutError:
        return "waited in vain"
    return f"{answer.status} {answer.json['message']}" if answer.status != 200 else "200"


def test_requests_in_flight_of_a_model_that_goes_are_torchserves_to_answer(
    server: TorchServe, mar: Mar, tmp_path: Path
) -> None:
    """It closes the connection first: no worker, in a pool or not, has a say in what their clients get."""
    with ThreadPoolExecutor(2) as clients:
        _register(server, mar)
        asked = [clients.submit(_outcome, server, "inside", tmp_path / "gate", 5.0)]
        wait_for_log(server, "here it is")
        asked.append(clients.submit(_outcome, server, "inside", tmp_path / "gate", 5.0))
        wait_for(
            lambda: server.describe("inside")[0]["jobQueueStatus"]["pendingRequests"] == 1,
            "another one to wait in TorchServe's queue",
        )
        assert server.unregister("inside").status == 200
        running, queued = (each.result() for each in asked)
        assert running in ("500 Worker died.", "waited in vain")
        assert queued == "waited in vain"
        (tmp_path / "gate").touch()
        _register(server, mar)
        assert _is_answered(server)
