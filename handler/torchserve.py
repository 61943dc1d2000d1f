"""TorchServe 0.12, as far as interpool relies on it: where to look when there is another.

What is TorchServe's own and our code names, public or not, stands here with the reason. Nothing
here imports it. ``differences`` holds an installed TorchServe to all of it at once: it reads the
sources of the ``ts`` package and the strings of the Java frontend, and runs neither.
``archiver_differences`` does so for torch-model-archiver, which is released with it.
``interpool doctor`` shows what it finds, and a test demands that it finds nothing.

What is not here, because it must stand on its own, is in the same words there, and tests hold it
to this module: the first section of ``frontend.shim`` (one file, the standard library alone), and
the frames that ``native/cpp`` reads without Python.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import struct
import sys
import tempfile
import time
import zipfile
from collections.abc import Container, Iterable
from pathlib import Path
from typing import NamedTuple

from interpool.handler.errors import OverlayError

MINIMUM_JAVA = 11
EXEC_PATIENCE_S = 5.0  # for a process that has just been started to show its arguments
ACCEPT_TIMEOUT_S = 30.0  # how long a worker waits for its frontend

HOME_VARIABLE = "TS_MODEL_SERVER_HOME"  # where the frontend finds the `ts` directory
WORKER_SCRIPT = "model_service_worker.py"
# What the frontend asks its home for, whatever else there is.
REQUIRED_FILES = (
    "version.txt",
    "configs/metrics.yaml",
    "metrics/metric_collector.py",
    "utils/setup_model_venv.py",
    WORKER_SCRIPT,
)
WORKER_OPTIONS = ("--sock-type", "--sock-name", "--host", "--port", "--metrics-config", "--async")
STARTED_LINES = ("[PID]", "Torch worker started.")  # what the frontend waits for in a worker's stdout
# A line of a worker's stdout that begins so and is no metric is an error in the frontend's own log.
METRICS_LINE = "[METRICS]"
NO_METRIC = 'Failed to parse metrics line: "{}".'
# What the frontend starts a worker with, besides Python itself.
CPU_LAUNCHER = "torch.backends.xeon.run_cpu"
TORCHRUN = "torchrun"
MANIFEST = "MAR-INF/MANIFEST.json"  # in an extracted .mar
PID_FILE = ".model_server.pid"  # of the frontend, in the temporary directory
CONFIG_OPTION = "-f"  # of the frontend's: its configuration
ADDRESSES = {"inference_address": "http://127.0.0.1:8080", "management_address": "http://127.0.0.1:8081"}
MOST_REQUEST_BYTES = 6_553_500  # unless max_request_size says more
MOST_RESPONSE_BYTES = 6_553_500  # likewise max_response_size
FRONTEND_CLASS = "org.pytorch.serve.ModelServer"
# In a model's configuration: requests that belong together go to one worker, whose handler remembers.
KEEPS_STATE = ("sequenceBatching", "sequenceMaxIdleMSec", "sequenceTimeoutMSec", "continuousBatching")
STARTUP_TIMEOUT = "startupTimeout"  # likewise: seconds that a worker may take to load it
# What the frontend adds to the environment of its workers, where its configuration says nothing of it.
WORKER_ENVIRONMENT = {
    "TS_DECODE_INPUT_REQUEST": "true",
    "TS_IPEX_ENABLE": "false",
    "TS_IPEX_GPU_ENABLE": "false",
}


class Python(NamedTuple):
    """A name in the sources of the ``ts`` or the ``model_archiver`` package.

    Attributes:
        module: where it is defined.
        name: a function, a class, a method, or a constant.
        why: what it is relied on for.
        parameters: names of what it must take, without ``self``, those of ``__init__`` for a class;
            None for what is not called by us.
        mentions: names, attributes and constants that must occur in its source.
    """

    module: str
    name: str
    why: str
    parameters: str | None = None
    mentions: tuple[str, ...] = ()


class Java(NamedTuple):
    """A class of the frontend, and strings that must occur in it."""

    name: str
    mentions: tuple[str, ...]
    why: str


_OTF = "ts.protocol.otf_message_handler"
_CACHE = "ts.metrics.metric_cache_abstract"
_CACHE_YAML = "ts.metrics.metric_cache_yaml_impl"

PYTHON = (
    # ---- the protocol between frontend and worker
    Python(_OTF, "LOAD_MSG", "tells the load command from a batch", mentions=("b'L'",)),
    Python(_OTF, "PREDICT_MSG", "native/cpp recognizes a batch by it", mentions=("b'I'",)),
    Python(
        _OTF,
        "retrieve_msg",
        "decodes a frame, and logs a line that backend.plain_logging writes",
        "conn",
        ("LOAD_MSG", "Backend received inference at: %d"),
    ),
    Python(_OTF, "_retrieve_buffer", "uses nothing of a socket but recv()", "conn length", ("recv",)),
    Python(
        _OTF,
        "_retrieve_load_msg",
        "what a load command says",
        "conn",
        ("modelName", "modelPath", "batchSize", "handler", "gpu", "envelope", "limitMaxImagePixels"),
    ),
    Python(
        _OTF,
        "_retrieve_request",
        "what native/cpp makes of a request; a refused one is answered by its id",
        "conn",
        ("requestId", "headers", "parameters"),
    ),
    Python(_OTF, "_retrieve_reqest_header", "likewise of a header", "conn", ("name", "value")),
    Python(
        _OTF,
        "_retrieve_input_data",
        "likewise of a parameter",
        "conn",
        ("name", "contentType", "value", "application/json", "text", "TS_DECODE_INPUT_REQUEST", "true"),
    ),
    Python(_OTF, "create_load_model_response", "answers a load command", "code message"),
    Python(
        _OTF,
        "create_predict_response",
        "answers a batch that is refused; native/cpp encodes what is usual as it does",
        "ret req_id_map message code context ts_stream_next",
        ("LOCAL_RANK", "ts_stream_next", "stopping_criteria", "content_type", "Tensor", "dumps"),
    ),
    Python(
        "ts.handler_utils.utils",
        "send_intermediate_predict_response",
        "handlers stream through cl_socket.sendall(), which is ours",
        mentions=("cl_socket", "sendall"),
    ),
    # ---- loading
    Python(
        "ts.model_service_worker",
        "TorchModelServiceWorker.load_model",
        "what backend.service does instead",
        "load_model_request",
        ("System out of memory", "loaded model {}", "model_name: %s, batchSize: %d"),
    ),
    Python(
        "ts.model_service_worker",
        "SOCKET_ACCEPT_TIMEOUT",
        "the host waits as long",
        mentions=(str(ACCEPT_TIMEOUT_S),),
    ),
    Python(
        "ts.model_loader",
        "TsModelLoader.load",
        "what backend.loading does instead",
        "model_name model_dir handler gpu_id batch_size envelope limit_max_image_pixels metrics_cache",
        ("set_request_ids", "handle"),
    ),
    Python("ts.model_loader", "TsModelLoader._load_default_envelope", "finds an envelope", "envelope"),
    Python("ts.torch_handler.request_envelope.base", "BaseEnvelope", "wraps a model's handle()", "handle_fn"),
    # ---- calling
    Python(
        "ts.service",
        "Service",
        "backend.service sets what its __init__ sets",
        "model_name model_dir manifest entry_point gpu batch_size limit_max_image_pixels metrics_cache",
        ("_context", "_entry_point"),
    ),
    Python("ts.service", "Service.context", "is what load_model made"),
    Python(
        "ts.service",
        "Service.predict",
        "answers a batch by backend.codec",
        "batch",
        ("PredictionException", "CUDA", "create_predict_response"),
    ),
    Python(
        "ts.service",
        "Service.retrieve_data_for_inference",
        "native/cpp takes a batch apart as it does",
        "batch",
        (
            "requestId",
            "parameters",
            "headers",
            "name",
            "value",
            "contentType",
            "content-type",
            "RequestProcessor",
        ),
    ),
    Python("ts.service", "Service.set_cl_socket", "gives handlers a socket to stream to", "cl_socket"),
    Python(
        "ts.context",
        "Context",
        "made by load_model and for self-tests",
        "model_name model_dir manifest batch_size gpu mms_version limit_max_image_pixels metrics"
        " model_yaml_config",
        ("request_ids", "request_processor", "model_dir", "gpu_id", "batch_size", "limit_max_image_pixels"),
    ),
    Python("ts.context", "Context.get_request_id", "hands a request on to a shard", "idx"),
    Python("ts.context", "Context.get_request_header", "finds describe and explain", "idx key"),
    Python("ts.context", "Context.get_all_request_header", "hands a request on to a shard", "idx"),
    Python("ts.context", "Context.get_response_content_type", "a handler's own counts", "idx"),
    Python("ts.context", "Context.set_response_content_type", "says what an answer is", "idx value"),
    Python("ts.context", "Context.get_response_status", "hands an answer back from a shard", "idx"),
    Python("ts.context", "Context.set_response_status", "one request's status", "code phrase idx"),
    Python("ts.context", "Context.get_response_headers", "hands an answer back from a shard", "idx"),
    Python("ts.context", "Context.set_response_header", "hands an answer back", "idx key value"),
    Python("ts.context", "Context.request_processor", "native/cpp asks it", mentions=("_request_processor",)),
    Python(
        "ts.context",
        "RequestProcessor",
        "a request's headers; native/cpp reads what it has of the answer",
        "request_header",
        ("_status_code", "_reason_phrase", "_response_header"),
    ),
    Python("ts.utils.util", "PredictionException", "a status and a text", "message error_code"),
    Python("ts.utils.util", "get_yaml_config", "a context's model_yaml_config", "yaml_file_path"),
    Python("ts", "__version__", "a context's mms_version"),
    # ---- metrics
    Python(_CACHE_YAML, "MetricsCacheYamlImpl", "a model's metrics", "config_file_path"),
    Python(_CACHE_YAML, "MetricsCacheYamlImpl.initialize_cache", "reads the declared metrics", ""),
    Python(
        _CACHE,
        "MetricCacheAbstract",
        "a cache's fields",
        None,
        ("model_name", "request_ids", "config_file_path"),
    ),
    Python(_CACHE, "MetricCacheAbstract._add_default_dims", "is overridden", "idx dimensions"),
    Python(_CACHE, "MetricCacheAbstract.set_request_ids", "for metrics of a load", "request_ids"),
    Python(
        "ts.metrics.caching_metric",
        "CachingMetric.emit_metrics",
        "logs by the module's logger, in whose place backend.plain_logging puts its own",
        "request_id value dimension_string",
        ("logger", "info"),
    ),
    Python("ts.metrics.caching_metric", "logger", "likewise"),
    Python(
        "ts.metrics.caching_metric",
        "CachingMetric",
        "backend.metrics makes the same line",
        mentions=("[METRICS]", "|#", "|#type:", "|#hostname:", "gethostname"),
    ),
    Python("ts.metrics.metric_type_enum", "MetricTypes", "a time is a gauge", mentions=("GAUGE",)),
    Python(
        _CACHE, "MetricCacheAbstract.add_time", "is overridden", "name value idx unit dimensions metric_type"
    ),
    Python("ts.metrics.dimension", "Dimension", "a metric's dimension", "name value"),
    Python("ts.metrics.metrics_store", "MetricsStore", "metrics of self-tests", "request_ids model_name"),
    # ---- starting
    Python(
        "ts.model_server",
        "start",
        "is what `interpool serve` runs, and says which process it started",
        "",
        ("executable", PID_FILE, CONFIG_OPTION),
    ),
    Python("ts.model_server", "TS_NAMESPACE", "tells the frontend's process", mentions=(FRONTEND_CLASS,)),
    Python("ts.arg_parser", "ArgParser.model_service_worker_args", "what a shim is told", "", WORKER_OPTIONS),
)
JAVA = (
    Java(
        "util.ConfigManager", (HOME_VARIABLE, "LOG_LOCATION"), "the overlay is its home; the host logs there"
    ),
    Java("util.ConfigManager", tuple(WORKER_ENVIRONMENT), "a host that no worker starts has its environment"),
    Java("util.messages.EnvironmentUtils", ("PYTHONPATH", "site-packages"), "a worker's imports"),
    Java(
        "wlm.WorkerLifeCycle",
        (WORKER_SCRIPT, CPU_LAUNCHER, TORCHRUN, *WORKER_OPTIONS[:2], *WORKER_OPTIONS[3:]),
        "how a worker is started",
    ),
    Java("wlm.WorkerLifeCycle$ReaderThread", STARTED_LINES, "how it says that it started"),
    Java(
        "wlm.WorkerLifeCycle$ReaderThread",
        (r"^(INFO > )?(\[METRICS])(.*)", NO_METRIC),
        "how ts_log gets what went wrong",
    ),
    Java(
        "wlm.BatchAggregator",
        ("addFirst", "isControlCmd"),
        "puts back what a stopped worker is at: native/cpp/core/answered_requests.h",
    ),
    Java("wlm.ModelManager", ("setup_model_venv.py", "pip"), "what is installed for a model"),
    Java("archive.model.ModelArchive", ("MANIFEST.json",), "the manifest of a .mar"),
    Java("archive.model.ModelConfig", KEEPS_STATE, "whose handlers need a state for each worker"),
    Java("archive.model.ModelConfig", (STARTUP_TIMEOUT,), "how long a trial may take"),
)
_PACKAGING_UTILS = "model_archiver.model_packaging_utils"
ARCHIVER = (
    Python("model_archiver.model_packaging", "generate_model_archive", "makes a .mar", "config"),
    Python(
        "model_archiver.model_archiver_config",
        "ModelArchiverConfig",
        "what mar.making asks for",
        mentions=(
            "model_name", "handler", "version", "serialized_file", "model_file", "extra_files", "runtime",
            "export_path", "archive_format", "requirements_file", "config_file",
        ),
    ),
    Python("model_archiver.model_archiver_error", "ModelArchiverError", "why there is no .mar"),
    Python(_PACKAGING_UTILS, "model_handlers", "handlers that are no files of the user's"),
    Python(
        _PACKAGING_UTILS,
        "ModelExportUtils.copy_artifacts",
        "mar.making gives it a temporary directory, and tells wildcards from paths as it does",
        mentions=("gettempdir", "*", "?", "[", "]"),
    ),
    Python(
        _PACKAGING_UTILS,
        "archiving_options",
        "names of what it makes",
        mentions=("tgz", ".tar.gz", "no-archive", "zip-store", "default", ".mar"),
    ),
    Python(_PACKAGING_UTILS, "MAR_INF", "the manifest of a .mar", mentions=(MANIFEST.partition("/")[0],)),
    Python(_PACKAGING_UTILS, "MANIFEST_FILE_NAME", "the same", mentions=(MANIFEST.partition("/")[2],)),
)  # fmt: skip


def load_command(model_name: str, model_dir: str, handler: str) -> bytes:
    """The frontend's first message to a worker without a GPU: load this model, for single requests."""

    def integer(value: int) -> bytes:
        return struct.pack(">i", value)

    def text(value: str) -> bytes:
        return integer(len(value.encode())) + value.encode()

    no_gpu, no_envelope, limit_image_pixels = integer(-1), text(""), b"\1"
    model = text(model_name) + text(model_dir) + integer(1) + text(handler)
    return b"L" + model + no_gpu + no_envelope + limit_image_pixels


def ts_log_line(text: str) -> str:
    """A line for a worker's stdout that stands in ``ts_log.log``, beside the frontend's own.

    All else that workers print goes to ``model_log.log`` or is a metric, and of what a worker
    answers to a load the frontend keeps the status code alone.
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


def running_frontend() -> int | None:
    """The process of the TorchServe that was started with this temporary directory, if it runs."""
    try:
        pid = int(Path(tempfile.gettempdir(), PID_FILE).read_text(encoding="ascii"))
        process = Path(f"/proc/{pid}")
        patience = time.monotonic() + EXEC_PATIENCE_S
        # Linux tells a program's arguments a moment after whoever started it has gone on.
        while not (arguments := (process / "cmdline").read_bytes()) and time.monotonic() < patience:
            (process / "exe").readlink()  # neither the kernel's own nor a process that has ended has one
            time.sleep(0.001)
    except (OSError, ValueError):
        return None
    return pid if FRONTEND_CLASS.encode() in arguments.split(b"\0") else None


def running_addresses() -> tuple[str, str]:
    """Where a client here reaches the running TorchServe's inference and management; its own if none runs."""
    pid = running_frontend()
    inference, management = (
        address.replace("//0.0.0.0", "//127.0.0.1") for address in addresses_of(pid or 0)
    )
    return inference, management


def addresses_of(frontend: int) -> tuple[str, ...]:
    """The inference and management addresses of the frontend that is this process; 0: those of its own."""
    settings = _settings(frontend) if frontend else {}
    return tuple(settings.get(name, default) for name, default in ADDRESSES.items())


def most_response_bytes(frontend: int) -> int:
    """TorchServe's max_response_size, in bytes, of the frontend that is this process."""
    given = _settings(frontend).get("max_response_size")
    return int(given) if given and given.isdecimal() else MOST_RESPONSE_BYTES


def _settings(frontend: int) -> dict[str, str]:
    """What a running frontend's configuration file and, if it says so, its environment say; {} if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        process = Path(f"/proc/{frontend}")
        arguments = (process / "cmdline").read_bytes().split(b"\0")
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


def differences(package: Path) -> list[str]:
    """Each way in which a ``ts`` package is not as this module says, in words; never raises."""
    return [*_python_differences(package, PYTHON), *_java_differences(package)]


def archiver_differences(package: Path) -> list[str]:
    """Each way in which a ``model_archiver`` package is not as this module says, in words; never raises."""
    return _python_differences(package, ARCHIVER)


def _python_differences(package: Path, names: Iterable[Python]) -> list[str]:
    sources: dict[str, ast.Module | None] = {}
    found = []
    for relied in names:
        if relied.module not in sources:
            sources[relied.module] = _source(package, relied.module)
        module = sources[relied.module]
        node = _definition(module, relied.name) if module else None
        if node is None:
            changes = ["is missing"]
        else:
            changes = [*_other_parameters(node, relied), *_unmentioned(_words(node), relied.mentions)]
        found += [f"{relied.module}.{relied.name} {change} ({relied.why})" for change in changes]
    return found


def _other_parameters(node: ast.AST, relied: Python) -> list[str]:
    takes = _parameters(node)
    if relied.parameters is None or takes == relied.parameters.split():
        return []
    return [f"takes ({', '.join(takes)}), not ({', '.join(relied.parameters.split())})"]


def _unmentioned(words: Container[str], mentions: tuple[str, ...]) -> list[str]:
    gone = [word for word in mentions if word not in words]
    return [f"knows no {', '.join(gone)}"] if gone else []


def _source(package: Path, module: str) -> ast.Module | None:
    path = package.joinpath(*module.split(".")[1:])
    try:
        text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_bytes()
        return ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return None


def _definition(module: ast.Module, name: str) -> ast.AST | None:
    """What defines ``name``, which may have a class's name before its dot."""
    scope: ast.AST | None = module
    for part in name.split("."):
        body = getattr(scope, "body", [])
        scope = next((statement for statement in body if part in _defined(statement)), None)
    return scope


def _defined(statement: ast.AST) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _parameters(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ClassDef):
        node = next((statement for statement in node.body if "__init__" in _defined(statement)), node)
    if not isinstance(node, ast.FunctionDef):
        return []
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return [name for name in names if name != "self"]


def _words(node: ast.AST) -> set[str]:
    """Names, attributes and constants in a piece of source."""
    words = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant):
            words.add(str(inner.value))
        elif isinstance(inner, ast.Attribute):
            words.add(inner.attr)
        elif isinstance(inner, ast.Name):
            words.add(inner.id)
    return words


def _java_differences(package: Path) -> list[str]:
    try:
        with zipfile.ZipFile(package / "frontend" / "model-server.jar") as jar:
            present = set(jar.namelist())
            return [line for java in JAVA for line in _class_differences(jar, present, java)]
    except (OSError, zipfile.BadZipFile) as error:
        return [f"the frontend's jar cannot be read: {error}"]


def _class_differences(jar: zipfile.ZipFile, present: set[str], java: Java) -> list[str]:
    member = f"org/pytorch/serve/{java.name.replace('.', '/')}.class"
    if member not in present:
        changes = ["is missing"]
    else:  # a class file holds its strings as they are
        changes = _unmentioned(jar.read(member).decode("latin-1"), java.mentions)
    return [f"the frontend's {java.name} {change} ({java.why})" for change in changes]
