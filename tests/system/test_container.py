"""The image of configs/Dockerfile: built, and run by podman with next to no rights."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients import Load
from local_server import JSON, free_ports
from paths import ROOT
from system.comparison.archive import Archive
from system.comparison.building import build
from system.conftest import Pack
from waiting import wait_for

from interpool.archiver_ext.mar.making import MarRequest, make_mar
from interpool.handler import interpool_handler

pytestmark = pytest.mark.long

BASE = "docker.io/library/python:3.11-slim-bookworm"
IMAGE = "interpool-test:latest"
NAME = "interpool-under-test"  # not the image's: podman takes either for the other
PODMAN = ("podman", "--runtime", "runc")
HERE = ("--network=host", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000")
# A user without rights, nothing writable but /tmp, no capability, the default seccomp profile.
STRICT = (
    *("--read-only", "--tmpfs=/tmp:rw,mode=1777,size=4g", "--user=1000", "--cap-drop=ALL"),
    *("--security-opt=no-new-privileges", "--cpus=2", "--memory=4g"),
)
INFERENCE, POOLS = "http://127.0.0.1:8080", "http://127.0.0.1:9191"
ENVIRONMENT = ("INTERPOOL_INTERPRETERS=2", "INTERPOOL_ORDINARY_ARCHIVES=pool", "OMP_NUM_THREADS=1")
NUMBERS = itertools.count()  # no two requests have the same
BALANCER = """
global
    maxconn 100
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option redispatch
frontend clients
    bind 127.0.0.1:{front}
    default_backend replicas
backend replicas
    option httpchk GET /ready
    default-server check inter 500ms fall 2 rise 1
    server one 127.0.0.1:8080 port 9191
    server two 127.0.0.1:8180 port 9291
"""


def _podman(*arguments: str | Path, check: bool = True) -> str:
    done = subprocess.run([*PODMAN, *map(str, arguments)], capture_output=True, text=True, timeout=1800)
    assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def _base(folder: Path) -> None:
    """Have the base's name stand for a Debian with its own Python, if no registry has the real one."""
    if subprocess.run([*PODMAN, "image", "exists", BASE], check=False).returncode == 0:
        return
    packages = "python3,python3-venv,python3-dev,libpython3.11,ca-certificates,python-is-python3"
    root = folder / "debian"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", root], check=True
    )
    with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run([*PODMAN, "import", "-", BASE], stdin=tar.stdout, check=True)
    shutil.rmtree(root)


def _settings_of_pip(folder: Path) -> list[str]:
    """Options with which pip in a build finds what it finds here: certificates, and folders of wheels."""
    lines, mounts = ["[global]"], []
    if certificate := os.environ.get("PIP_CERT"):
        shutil.copy(certificate, folder / "ca.crt")
        lines.append("cert = /mirror/ca.crt")
    if wheels := os.environ.get("PIP_FIND_LINKS"):
        lines.append(f"find-links = {wheels}")
        mounts.append(f"--volume={wheels}:{wheels}:ro")
        mounts.append("--build-arg=TORCH_INDEX=https://pypi.org/simple")
    (folder / "pip.conf").write_text("\n".join(lines) + "\n")
    return [*mounts, f"--volume={folder}:/mirror:ro", f"--volume={folder}/pip.conf:/etc/pip.conf:ro"]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    tools = [name for name in ("podman", "runc", "debootstrap") if shutil.which(name) is None]
    if tools and os.geteuid() == 0:
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *tools], check=False)
    if lacking := [name for name in tools if shutil.which(name) is None]:
        pytest.skip(f"no {', '.join(lacking)}")
    folder = tmp_path_factory.mktemp("image")
    _base(folder)
    if "ran" not in (said := _podman("run", "--rm", *HERE, BASE, "echo", "ran", check=False)):
        pytest.skip(f"no container runs here: {said[-300:]}")
    pip = folder / "pip"
    pip.mkdir()
    file, ignored = (ROOT / "configs" / name for name in ("Dockerfile", "Dockerfile.dockerignore"))
    options = [*HERE, "--format=docker", f"--ignorefile={ignored}", *_settings_of_pip(pip)]
    _podman("build", *options, "-f", file, "-t", IMAGE, ROOT)
    return IMAGE


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, packed: Pack) -> Path:
    store = tmp_path_factory.mktemp("models")
    make_mar(MarRequest(packed("linear"), str(interpool_handler.__file__), "linear", export_path=store))
    build(Archive("answers", "handler.py", [], []), store)
    for path in (store, *store.iterdir()):
        path.chmod(0o755)
    return store


@pytest.fixture
def running(image: str, models: Path) -> Iterator[None]:
    _podman("rm", "-f", NAME, check=False)
    _start(NAME, image, models)
    try:
        _await(NAME)
        yield
    finally:
        _podman("rm", "-f", NAME)


def _start(name: str, image: str, models: Path, *options: str) -> None:
    variables = [f"--env={each}" for each in ENVIRONMENT]
    volume = f"--volume={models}:/models:ro"
    _podman("run", "-d", "--name", name, *HERE, *STRICT, *variables, volume, *options, image)


def _await(name: str, pools: str = POOLS) -> None:
    wait_for(lambda: _is_ready(pools), lambda: f"{name}: {_podman('logs', name, check=False)[-3000:]}")


def _get(url: str, body: bytes | None = None) -> tuple[int, bytes]:
    asked = urllib.request.Request(url, body, {"Content-Type": JSON})
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except OSError as error:
        return 0, str(error).encode()


def _is_ready(pools: str = POOLS) -> bool:
    status, body = _get(f"{pools}/ready")
    return status == 200 and len(json.loads(body)["models"]) == 2


def test_hermetic_and_ordinary_models_answer_from_a_container_that_may_do_next_to_nothing(
    running: None,
) -> None:
    assert json.loads(_get(f"{INFERENCE}/predictions/linear", b"[[1.0, 1.0, 1.0]]")[1]) == [[3.0, 12.0]]
    assert _get(f"{INFERENCE}/predictions/answers", b'{"answer": "int"}') == (200, b"7")
    status = _podman("exec", NAME, "interpool", "status")
    assert "interpreters: 2 of" in status
    assert status.count("4 connected") == 2
    assert b"interpool_model_ready{" in _get(f"{POOLS}/metrics")[1]
    _podman("healthcheck", "run", NAME)
    assert re.search(r"Seccomp:\s+2", _podman("exec", NAME, "cat", "/proc/1/status"))
    log = _podman("logs", NAME)
    assert "cannot write" not in log, log


def test_a_start_makes_no_private_copies_anew(image: str, models: Path) -> None:
    _podman("rm", "-f", NAME, check=False)
    writable = [each for each in STRICT if each != "--read-only"]
    _podman("run", "-d", "--name", NAME, *HERE, *writable, f"--volume={models}:/models:ro", image)
    try:
        wait_for(lambda: _get(f"{POOLS}/ready")[0] == 200, "the container")
        added = [line for line in _podman("diff", NAME).splitlines() if line.startswith("A ")]
        assert [line for line in added if line.endswith(".so") or ".so." in line] == []
    finally:
        _podman("rm", "-f", NAME)


def test_the_container_ends_when_it_is_stopped(running: None) -> None:
    began = time.monotonic()
    _podman("stop", "-t", "90", NAME)
    assert time.monotonic() - began < 30
    assert _podman("inspect", "--format={{.State.ExitCode}}", NAME).strip() in ("0", "143")


def test_the_deployment_of_the_kubernetes_manifest_serves_as_a_pod_of_podman(
    image: str, models: Path, tmp_path: Path
) -> None:
    if shutil.which("catatonit") is None and os.geteuid() == 0:  # each pod's first process
        packages = ("catatonit", "containernetworking-plugins")
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *packages], check=False)
    if shutil.which("catatonit") is None:
        pytest.skip("no catatonit")
    ports = dict(zip(("8080", "7070", "8082", "9191"), free_ports(4), strict=True))
    manifest = tmp_path / "interpool.yaml"
    text = (ROOT / "configs" / "kubernetes" / "interpool.yaml").read_text()
    text = re.sub(r"image: \S+", f"image: localhost/{image}", text)
    text = re.sub(r"containerPort: (\d+)", lambda port: f"{port[0]}, hostPort: {ports[port[1]]}", text)
    manifest.write_text(text.replace("claimName: models", f"claimName: {NAME}-models"))
    with contextlib.ExitStack() as stack:
        volume = ("--opt=type=none", "--opt=o=bind", f"--opt=device={models}", f"{NAME}-models")
        _podman("volume", "create", *volume)
        stack.callback(_podman, "volume", "rm", "-f", f"{NAME}-models", check=False)
        stack.callback(_podman, "pod", "rm", "-f", "interpool-pod-0", check=False)
        _podman("kube", "play", manifest)
        container = "interpool-pod-0-interpool"
        pools, inference = (f"http://127.0.0.1:{ports[port]}" for port in ("9191", "8080"))
        # As the kubelet's probes: podman's would run in the container, which has no programs for them.
        wait_for(lambda: _get(f"{pools}/ready")[0] == 200, lambda: _podman("logs", container)[-3000:])
        assert _get(f"{inference}/ping")[0] == 200
        assert json.loads(_get(f"{inference}/predictions/linear", b"[[1.0, 1.0, 1.0]]")[1]) == [[3.0, 12.0]]
        may = _podman("exec", container, "cat", "/proc/1/status")
        assert re.search(r"Seccomp:\s+2", may)
        assert re.search(r"CapEff:\s+0+\n", may)
        assert re.search(r"Uid:\s+1000\s", may)
        assert "Read-only" in _podman("exec", container, "touch", "/file", check=False)
        began = time.monotonic()
        _podman("stop", "-t", "90", container)
        assert time.monotonic() - began < 40
        assert _podman("inspect", "--format={{.State.ExitCode}}", container).strip() in ("0", "143")


def _right_through(address: str) -> bool:
    """Ask for what no other request asks for; True, as AssertionError is raised for any other answer."""
    x = float(next(NUMBERS))
    answer = _get(f"{address}/predictions/linear", json.dumps([[0.0, x, 0.0]]).encode())
    assert answer[0] == 200, answer
    assert json.loads(answer[1]) == [[x, 4 * x]], answer
    return True


def test_a_rolling_restart_behind_a_balancer_fails_no_request(
    image: str, models: Path, tmp_path: Path
) -> None:
    if shutil.which("haproxy") is None and os.geteuid() == 0:
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "haproxy"], check=False)
    if shutil.which("haproxy") is None:
        pytest.skip("no haproxy")
    (front,) = free_ports(1)
    (tmp_path / "haproxy.cfg").write_text(BALANCER.format(front=front))
    # On one network, the second one's ports are others.
    properties = (ROOT / "configs" / "container.properties").read_text()
    other = tmp_path / "config.properties"
    other.write_text(re.sub(r"\b(80|70)(\d\d)\b", lambda found: str(int(found[0]) + 100), properties))
    tmp_path.chmod(0o755)
    replicas = {
        f"{NAME}-1": ("http://127.0.0.1:9191", ()),
        f"{NAME}-2": (
            "http://127.0.0.1:9291",
            (
                f"--volume={other}:/etc/interpool/config.properties:ro",
                "--env=INTERPOOL_METRICS_ADDRESS=0.0.0.0:9291",
            ),
        ),
    }
    with contextlib.ExitStack() as stack:
        for name, (pools, options) in replicas.items():
            stack.callback(_podman, "rm", "-f", name, check=False)
            _start(name, image, models, *options)
            _await(name, pools)
        balancer = stack.enter_context(subprocess.Popen(["haproxy", "-f", tmp_path / "haproxy.cfg"]))
        stack.callback(balancer.terminate)
        address = f"http://127.0.0.1:{front}"
        wait_for(lambda: _get(f"{address}/ping")[0] == 200, "the balancer")
        time.sleep(2)  # the balancer has seen both
        with Load(lambda: _right_through(address), 4) as clients:
            for name, (pools, options) in replicas.items():
                enough = clients.answers["True"] + 50
                wait_for(lambda enough=enough: clients.answers["True"] > enough, "answers")
                _podman("stop", "-t", "90", name)
                _podman("rm", name)
                _start(name, image, models, *options)
                wait_for(
                    lambda pools=pools: _is_ready(pools), lambda name=name: _podman("logs", name)[-3000:]
                )
                time.sleep(2)
        assert clients.failures == []
        assert clients.answers["True"] > 100
