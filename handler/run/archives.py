"""Opens the archives that are served without TorchServe, and reads the configuration inside them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interpool.handler.config import model_configuration, model_manifest, startup_timeout
from interpool.handler.direct.examples import Examples
from interpool.handler.direct.queue import QueueSettings
from interpool.handler.direct.supervision import ModelFiles
from interpool.handler.errors import ServeError
from interpool.handler.frontend import shim
from interpool.handler.host.extracting import PACKAGE, extracted
from interpool.handler.host.service_entry import LOAD_LIMIT_S
from interpool.handler.run.options import MOST, Options
from interpool.handler.torchserve import KEEPS_STATE, load_command


@dataclass(frozen=True)
class Archive:
    """An archive that is ready to be served.

    Attributes:
        name: the name that clients ask for.
        version: the version in its manifest.
        files: the files for its workers.
        settings: the settings of its queue.
        workers: the number of its workers; None: as many as the pool can use.
        examples: the examples of its requests.
    """

    name: str
    version: str
    files: ModelFiles
    settings: QueueSettings
    workers: int | None
    examples: Examples


def named(words: list[str]) -> dict[str, Path]:
    """Parse the archives of a command line.

    Args:
        words: each is ``NAME=FILE``, or ``FILE``, which names the model too.

    Returns:
        The archives' paths by name.

    Raises:
        ServeError: two archives have the same name.
    """
    found: dict[str, Path] = {}
    for word in words:
        name, equals, file = word.partition("=")
        is_named = name and equals and "/" not in name
        path = Path(file if is_named else word)
        name = name if is_named else _own_name(path)
        if name in found:
            raise ServeError(f"two archives are to be served as {name!r}: name them, as in NAME={path}")
        found[name] = path
    return found


def _own_name(path: Path) -> str:
    """The name of an archive that is given none: its file's name without the suffixes of its kind."""
    return path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".mar").removesuffix(PACKAGE)


@contextlib.contextmanager
def opened(name: str, path: Path, options: Options) -> Iterator[Archive]:
    """Extract an archive for as long as it is served.

    Args:
        name: the name that clients ask for.
        path: the archive's path.
        options: the caller's settings.

    Raises:
        ServeError: it is none, the operator refuses such archives, or it cannot be served without TorchServe;
            or no client can ask for that name.
        SettingsError: its manifest or its configuration cannot be read.
    """
    if not isinstance(name, str) or not name or "/" in name:
        raise ServeError(
            f"{name!r} cannot be a model's name, for {path}: it is a part of a path, without a slash"
        )
    if not path.exists():
        raise ServeError(f"there is no archive {path}")
    with extracted(path) as directory:
        _require_admissible(path, directory)
        manifest = model_manifest(directory)
        configured = model_configuration(directory)
        if keeps := [key for key in KEEPS_STATE if configured.get(key)]:
            raise ServeError(
                f"{path} is configured with {keeps[0]}, which only TorchServe's frontend knows: "
                "serve it with `interpool serve`"
            )
        settings = _settings(configured, options)
        handler, batch_size = str(manifest.get("handler")), settings.batch_size
        command = load_command(name, str(directory), handler, batch_size, envelope=options.service_envelope)
        limit = startup_timeout(directory) or LOAD_LIMIT_S
        files = ModelFiles(name, str(directory), command, limit)
        version = str(manifest.get("modelVersion") or "1.0")
        workers = options.workers or _whole(configured, "minWorkers")
        yield Archive(name, version, files, settings, workers, Examples.of_directory(directory, manifest))


def _require_admissible(path: Path, directory: Path) -> None:
    """Raise ServeError for an ordinary archive if the operator refuses these.

    A hermetic archive is checked when it is loaded.
    """
    try:
        if not shim.is_hermetic(str(directory)):
            shim.refuse_stock(dict(os.environ))
    except shim.Refused as error:
        raise ServeError(f"{path} cannot be served: {error}") from None


def _settings(configured: dict[str, Any], options: Options) -> QueueSettings:
    usual = QueueSettings()
    delay_ms = options.batch_delay_ms
    if delay_ms is None:
        delay_ms = _whole(configured, "maxBatchDelay")
    client_timeout_s = options.client_timeout_s or (_whole(configured, "clientTimeoutInMills") or 0) / 1000
    return QueueSettings(
        batch_size=options.batch_size or _whole(configured, "batchSize") or usual.batch_size,
        batch_delay_s=usual.batch_delay_s if delay_ms is None else delay_ms / 1000,
        queue_size=options.queue_size or _whole(configured, "jobQueueSize") or usual.queue_size,
        response_timeout_s=options.response_timeout_s
        or _whole(configured, "responseTimeout")
        or usual.response_timeout_s,
        client_timeout_s=client_timeout_s,
    )


def _whole(configured: dict[str, Any], key: str) -> int | None:
    """A positive whole number of the configuration. As in TorchServe, any other value counts as absent."""
    value = configured.get(key)
    return value if type(value) is int and 0 < value <= MOST else None
