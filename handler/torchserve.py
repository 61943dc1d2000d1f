"""TorchServe 0.12, as far as interpool relies on it: the file to change for another release.

All names of TorchServe's that our code uses are here. Nothing here imports TorchServe. It was archived in
August 2025, and interpool takes exactly one version: ``differences`` finds the files that are not that one's.
``interpool doctor`` shows them, and a test demands that there are none.

Its defaults that clients need, too, are in ``native.torchserve``.

Two places repeat a part of it, because they cannot import this module, and tests compare them with it. They
are the first section of ``frontend.shim`` (one file, the standard library alone), and the frames that
``native/cpp`` reads without Python.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import struct
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from interpool.handler.errors import OverlayError
from interpool.native.torchserve import ADDRESSES, MOST_RESPONSE_BYTES

MINIMUM_JAVA = 11
_DIGITS = 16  # of a digest
EXEC_PATIENCE_S = 5.0  # for a process that has just been started to show its arguments
ACCEPT_TIMEOUT_S = 30.0  # how long a worker waits for its frontend

HOME_VARIABLE = "TS_MODEL_SERVER_HOME"  # where the frontend finds the `ts` directory
WORKER_SCRIPT = "model_service_worker.py"
# What every frontend asks its home for.
REQUIRED_FILES = (
    "version.txt",
    "configs/metrics.yaml",
    "metrics/metric_collector.py",
    "utils/setup_model_venv.py",
    WORKER_SCRIPT,
)
# A line of a worker's stdout that begins so and is no metric is an error in the frontend's own log.
METRICS_LINE = "[METRICS]"
# What the frontend starts a worker with, besides Python itself.
CPU_LAUNCHER = "torch.backends.xeon.run_cpu"
TORCHRUN = "torchrun"
MANIFEST = "MAR-INF/MANIFEST.json"  # in an extracted .mar
PID_FILE = ".model_server.pid"  # of the frontend, in the temporary directory
CONFIG_OPTION = "-f"  # of the frontend's: its configuration
# With this option, or this setting, requests need no token.
TOKENS_OPTION, TOKENS_DISABLED = "--disable-token-auth", "disable_token_authorization"
FRONTEND_CLASS = "org.pytorch.serve.ModelServer"
# In a model's configuration: requests that belong together go to one worker, whose handler remembers.
KEEPS_STATE = ("sequenceBatching", "sequenceMaxIdleMSec", "sequenceTimeoutMSec", "continuousBatching")
STARTUP_TIMEOUT = "startupTimeout"  # likewise: seconds that a worker may take to load it
# What the frontend adds to the environment of its workers, unless its configuration says otherwise.
WORKER_ENVIRONMENT = {
    "TS_DECODE_INPUT_REQUEST": "true",
    "TS_IPEX_ENABLE": "false",
    "TS_IPEX_GPU_ENABLE": "false",
}


# The files of the installed packages that interpool relies on, and the beginning of each SHA-256.
TS_FILES = {
    "arg_parser.py": "08b73047b8bdfb66",
    "context.py": "57eee89d1f8bf8a2",
    "handler_utils/utils.py": "8daf7e5b71e66c03",
    "metrics/caching_metric.py": "3e460b042270864e",
    "metrics/dimension.py": "c425ce7e0f2b9712",
    "metrics/metric_cache_abstract.py": "60cead7212a31fa9",
    "metrics/metric_cache_yaml_impl.py": "30e2558e08b7dd57",
    "metrics/metric_type_enum.py": "f4ea450f38efeebe",
    "metrics/metrics_store.py": "9293ccaf3beeffdb",
    "model_loader.py": "a806e88c06c8e8bb",
    "model_server.py": "aee03202004a6296",
    "model_service_worker.py": "3640d5ae3d03e229",
    "protocol/otf_message_handler.py": "83e82dc62b4a95a3",
    "service.py": "f18259269551299d",
    "torch_handler/request_envelope/base.py": "0b5c22a5c8a7d29a",
    "utils/util.py": "090286a17031f5fa",
    "frontend/model-server.jar": "ce340411ce54beaa",
}
ARCHIVER_FILES = {
    "model_archiver_config.py": "248903f517f9115d",
    "model_archiver_error.py": "5ccadf4147db5063",
    "model_packaging.py": "1de09a6477bfc0fa",
    "model_packaging_utils.py": "8ce0836bdd23564d",
}


ENVELOPES = ("body", "json", "kserve", "kservev2")


def load_command(
    model_name: str, model_dir: str, handler: str, batch_size: int = 1, gpu: int = -1, envelope: str = ""
) -> bytes:
    """The frontend's first message to a worker: load this model.

    Args:
        model_name: that it is registered by.
        model_dir: where its archive is extracted.
        handler: that its manifest names.
        batch_size: the most requests in a batch.
        gpu: its number; -1 for none.
        envelope: one of ``ENVELOPES``, or "" for none.
    """

    def integer(value: int) -> bytes:
        return struct.pack(">i", value)

    def text(value: str) -> bytes:
        return integer(len(value.encode())) + value.encode()

    limit_image_pixels = b"\1"
    model = text(model_name) + text(model_dir) + integer(batch_size) + text(handler)
    return b"L" + model + integer(gpu) + text(envelope) + limit_image_pixels


def name_in_load_command(command: bytes) -> str:
    """The model's name in the frontend's first message to a worker."""
    name_at = 5  # behind the command's letter and the length
    return command[name_at : name_at + int.from_bytes(command[1:name_at], "big")].decode()


def ts_log_line(text: str) -> str:
    """A line for a worker's stdout that stands in ``ts_log.log``, beside the frontend's own.

    All else that workers print goes to ``model_log.log`` or is a metric. Of a worker's answer to a load
    the frontend keeps the status code alone.
    """
    return f"{METRICS_LINE}interpool: {' '.join(text.split())}"


def installed_ts() -> Path:
    """The installed ``ts`` package's directory; raises OverlayError if TorchServe is absent.

    Found without importing it: ``import ts`` inside a worker's environment could already be
    an overlay's.
    """
    spec = importlib.util.find_spec("ts")
    if spec is None or spec.origin is None:
        raise OverlayError(f"TorchServe is not installed for {sys.executable}: pip install torchserve")
    package = Path(spec.origin).resolve().parent
    missing = [name for name in REQUIRED_FILES if not (package / name).is_file()]
    if missing:
        raise OverlayError(
            f"the `ts` package in {package} is not TorchServe as interpool knows it: "
            f"{', '.join(missing)} is missing; reinstall torchserve"
        )
    return package


def frontend_arguments(pid: int | str) -> list[bytes]:
    """The command line of a process that is a TorchServe's frontend; [] if it is none, or cannot be read."""
    with contextlib.suppress(OSError):
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return arguments if FRONTEND_CLASS.encode() in arguments else []
    return []


def running_frontend() -> int | None:
    """The process of the TorchServe that was started with this temporary directory, if it runs."""
    try:
        pid = int(Path(tempfile.gettempdir(), PID_FILE).read_text(encoding="ascii"))
        process = Path(f"/proc/{pid}")
        patience = time.monotonic() + EXEC_PATIENCE_S
        # Linux shows a program's arguments a moment after its parent has gone on.
        while not (process / "cmdline").read_bytes() and time.monotonic() < patience:
            (process / "exe").readlink()  # neither the kernel's own nor a process that has ended has one
            time.sleep(0.001)
    except (OSError, ValueError):
        return None
    return pid if frontend_arguments(pid) else None


def running_addresses() -> tuple[str, str]:
    """The running TorchServe's inference and management addresses; its defaults if none runs."""
    pid = running_frontend()
    inference, management = (
        address.replace("//0.0.0.0", "//127.0.0.1") for address in addresses_of(pid or 0)
    )
    return inference, management


def addresses_of(frontend: int) -> tuple[str, ...]:
    """The inference and management addresses of the frontend that is this process; 0: those of its own."""
    settings = settings_of(frontend) if frontend else {}
    return tuple(settings.get(name, default) for name, default in ADDRESSES.items())


def most_response_bytes(frontend: int) -> int:
    """TorchServe's max_response_size, in bytes, of the frontend that is this process."""
    given = settings_of(frontend).get("max_response_size")
    return int(given) if given and given.isdecimal() else MOST_RESPONSE_BYTES


def settings_of(frontend: int) -> dict[str, str]:
    """The settings of a running frontend: its options, configuration and, if it reads that, environment."""
    with contextlib.suppress(OSError):
        arguments = Path(f"/proc/{frontend}/cmdline").read_bytes().split(b"\0")
        given = {TOKENS_DISABLED: "true"} if TOKENS_OPTION.encode() in arguments else {}
        return {**_configured(Path(f"/proc/{frontend}"), arguments), **given}
    return {}


def _configured(process: Path, arguments: list[bytes]) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError, IndexError):
        file = os.fsdecode(arguments[arguments.index(CONFIG_OPTION.encode()) + 1])
        text = (process / "cwd" / file).read_text(encoding="utf-8", errors="replace")
        pairs = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
        settings = {name.strip(): value.strip().replace("\\", "") for name, _, value in pairs}
        if settings.get("enable_envvars_config") == "true":
            variables = os.fsdecode((process / "environ").read_bytes()).split("\0")
            named = (each.partition("=") for each in variables if each.startswith("TS_"))
            settings |= {name.removeprefix("TS_").lower(): value for name, _, value in named if value}
        return settings
    return {}


def differences(package: Path, files: Mapping[str, str]) -> list[str]:
    """The files of an installed package that are not those of the version that interpool relies on.

    Args:
        package: its directory.
        files: TS_FILES or ARCHIVER_FILES.
    """
    return [name for name, digest in files.items() if _digest(package / name) != digest]


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:_DIGITS]
    except OSError:
        return ""
