"""Settings of the serving side, validated: an unknown name is refused, not ignored.

A model's settings stand under ``interpool:`` in its model-config.yaml:

====================  ===========  ============================================================
key                   default      meaning
====================  ===========  ============================================================
``pool``              ``default``  the pool host that serves the model. Models that name
                                   different pools live in different processes: a crash takes
                                   down one pool's models only. Letters, digits, ``.-_``; 32 at
                                   most.
``interpreters``      (below)      interpreters in that pool, 1 to 256. The first model that
                                   comes to the pool decides; later ones find what there is.
``state``             (below)      ``interpreter``: a handler's state is one in each interpreter, which all
                                   workers of the model use. ``worker``: each worker has a state of its
                                   own, as a process has, and stays in one interpreter.
``share``             (below)      the most interpreters that the model's batches may have at once:
                                   a number, or a part of the pool's minimum size, as 0.5.
``call_limit``        (below)      seconds that the model's code may take for one batch.
``tracebacks``        ``false``    put the model's traceback into the answer of a request that
                                   made it raise. It is in the model log either way.
``isolation``         ``auto``     what it shares with other models. ``auto``: interpreters, until it
                                   leaves traces there; then it has its own. ``own``: it has them from the
                                   beginning. ``shared``: interpool looks for no traces. ``process``: its
                                   pool is a process that serves no other model.
``self_test``         ``false``    serve the model only if it answers the example inputs in its
                                   archive as it did when it was packed.
``ordinary``          ``pool``     for an archive that is not hermetic, if the server or its
                                   ``pool`` says that the pool serves it: ``stock`` leaves it to
                                   TorchServe's own workers.
====================  ===========  ============================================================

The environment TorchServe is started with configures the host:

=============================== ==============  =================================================
variable                        default         meaning
=============================== ==============  =================================================
``INTERPOOL_INTERPRETERS``      cores           interpreters in a pool whose models name no number
``INTERPOOL_CEILING``           see below       the maximum size that a pool may grow to, 1 to 256
``INTERPOOL_SHARE``             no limit        the ``share`` of models that name none
``INTERPOOL_CALL_LIMIT_S``      no limit        the ``call_limit`` of models that name none
``INTERPOOL_IDLE_MODEL_S``      ``600``         seconds without a request after which all but one of
                                                the interpreters that have a model drop it; 0: never
``INTERPOOL_MEMORY_MB``         no limit        memory that a pool's process may have, files' pages not
                                                counted; 256 at least
``INTERPOOL_IDLE_EXIT_S``       ``30``          seconds after its last worker left that a host stays
``INTERPOOL_SIGNATURE_KEYS``    none            PEM files of public keys, separated like ``PATH``:
                                                only archives signed by one of them are served
``INTERPOOL_VERIFY``            ``digests``     ``digests``: the content of every file in an archive
                                                is checked before it is served; ``structure``: not
``INTERPOOL_SELF_TEST``         ``0``           ``1``: as if every model had ``self_test: true``
``INTERPOOL_STOCK_ARCHIVES``    see below       ``allow`` or ``refuse`` archives that are not hermetic
``INTERPOOL_ORDINARY_ARCHIVES`` ``stock``       who serves archives that are not hermetic: ``stock``,
                                                TorchServe's own workers, or ``pool``
``INTERPOOL_LOG``               ``text``        ``json``: the host's log, and what calls log, is JSON,
                                                an object a line
``INTERPOOL_LOG_LEVEL``         ``info``        least level of the host's log: ``debug``, ``info``,
                                                ``warning`` or ``error``
``INTERPOOL_LOG_TO``            ``file``        where the host's log is: a ``file``, or TorchServe's own
                                                ``stdout``
``INTERPOOL_LOG_MB``            ``100``         size of that file, in 10^6 bytes, above which another one is
                                                begun; 0: any size
``INTERPOOL_LOG_FILES``         ``5``           how many earlier ones are kept
``INTERPOOL_START_AHEAD``       ``1``           ``1``: `interpool serve` starts the default pool's host
                                                with the server; ``0``: its first worker does
``INTERPOOL_DIRECT_ADDRESS``    none            where the default pool answers HTTP itself: ``HOST:PORT``, or
                                                ``unix:PATH``; see docs/direct.md
``INTERPOOL_DIRECT_ACCESS_LOG`` ``0``           ``1``: the host's log has a line for each request at the
                                                direct address, in the form of TorchServe's access log
``INTERPOOL_DRAIN_S``           ``0``           seconds after SIGTERM in which `interpool serve
                                                --foreground` is not ready and still answers; 0: it ends
                                                at once
``INTERPOOL_METRICS_ADDRESS``   none            ``HOST:PORT`` of the pools' metrics, for
                                                `interpool serve`
``INTERPOOL_RUNTIME_DIR``       see below       directory for sockets and locks, made with mode 0700
``INTERPOOL_CACHE``             see below       directory for private copies; for `interpool home`, too
``INTERPOOL_CACHE_DAYS``        ``14``          days after which private copies that no process has
                                                used are removed; 0: none for its age
``INTERPOOL_CACHE_GB``          ``10``          10^9 bytes of them above which those that were unused
                                                longest are removed sooner; 0: any size
=============================== ==============  =================================================

Another variable whose name begins with ``INTERPOOL_`` is refused, unless it is one of those that
``handler/frontend/shim.py`` lists, or Kubernetes sets it for a service.

A pool grows while requests wait and most running calls wait for something other than the CPU, and
for a model that would otherwise wait for the end of other models' calls.
If a number of interpreters is set, the pool has exactly that many unless a maximum is set. Otherwise
it may grow to four times the number of cores.

A model's ``state`` is each worker's own if TorchServe relies on it: with sequence batching or
continuous batching in its configuration.

A call is ended when TorchServe gives its worker up, which it does after the model's ``responseTimeout``.
One that takes longer than its ``call_limit`` is ended before: it answers 500, and the worker goes on.

An archive that is not hermetic is served by the pool if the server says so, or if its own settings
name a ``pool``, and if it can share a process with others; see docs/ordinary-archives.md.

Archives that are not hermetic cannot be checked. If the server asks for signatures, it refuses
them unless ``INTERPOOL_STOCK_ARCHIVES`` is ``allow``. Otherwise it serves them as TorchServe does.

The runtime directory is ``/tmp/interpool-UID``; the cache
``$XDG_CACHE_HOME/interpool``, else ``~/.cache/interpool``.

As a program (``python -m interpool.handler.config MODEL_DIR``) it prints the name of the pool
that a model's settings name, and nothing if they name none or are refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from interpool.handler.errors import NameRefused, SettingsError
from interpool.handler.frontend.shim import DEFAULT_POOL, unknown_variables
from interpool.handler.torchserve import KEEPS_STATE, MANIFEST, STARTUP_TIMEOUT
from interpool.native.archive.bounded import read_json, read_yaml
from interpool.native.archive.manifest_names import require_inside
from interpool.native.archive.typed_json import shown
from interpool.native.errors import StructureError

OWN_POOL = "own-"  # and more: the names of pools that serve one model

Interpreters = Annotated[int, Field(ge=1, le=256)]


def _share_of(value: object) -> object:
    """A whole number of interpreters, or a part of them; numbers come as text from the environment."""
    share = value
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            share = float(value) if "." in value else int(value)
    is_count = type(share) is int and 1 <= share <= 256
    if not (is_count or (type(share) is float and 0 < share < 1)):
        raise ValueError(
            "a share is a number of interpreters, 1 to 256, or a part of them between 0 and 1, as 0.5; "
            f"not {shown(value)}"
        )
    return share


Share = Annotated[int | float, BeforeValidator(_share_of)]


def _key_files(value: object) -> object:
    """Paths out of a list like PATH, each of a file that holds a public key."""
    if not isinstance(value, str):
        return value
    paths = [Path(part) for part in value.split(os.pathsep) if part]
    if not paths:
        raise ValueError("it is set and names no key: unset it to serve unsigned archives")
    for path in paths:
        # The host's working directory is a model's, which could bring a key of its own.
        if not path.is_absolute():
            raise ValueError(f"{path} is not an absolute path")
        try:
            text = path.read_bytes()
        except OSError as error:
            raise ValueError(f"the key {path} cannot be read ({error.strerror})") from None
        if b"-----BEGIN PUBLIC KEY-----" not in text:
            raise ValueError(f"{path} is not a PEM file of a public key; see `interpool sign --help`")
    return tuple(paths)


def _many_models_pool(name: str) -> str:
    """A name that is no pool's of a model's own."""
    if name.startswith(OWN_POOL):
        raise ValueError(
            f"the names of pools that serve one model begin with {OWN_POOL!r}: "
            "choose another, or `isolation: process`"
        )
    return name


PoolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,32}$"), AfterValidator(_many_models_pool)]
KeyFiles = Annotated[tuple[Path, ...], BeforeValidator(_key_files)]


class ModelSettings(BaseModel):
    """What stands under ``interpool:`` in a model's configuration file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pool: PoolName = DEFAULT_POOL
    interpreters: Interpreters | None = None
    state: Literal["interpreter", "worker"] = "interpreter"
    share: Share | None = None
    call_limit: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    tracebacks: bool = False
    self_test: bool = False
    ordinary: Literal["pool", "stock"] = "pool"
    isolation: Literal["auto", "shared", "own", "process"] = "auto"

    @property
    def unwatched(self) -> bool:
        """Whether interpool does not look for what the model leaves (WorkerToken)."""
        return self.isolation in ("shared", "own")

    @classmethod
    def of_model(cls, model_dir: str | Path) -> Self:
        """The settings of the model extracted in ``model_dir``; raises SettingsError."""
        file = _configuration_file(model_dir)
        return cls.of_file(file) if file else cls()

    @classmethod
    def of_file(cls, file: Path, shown_as: str = "") -> Self:
        """The settings in a model's configuration file.

        Args:
            file: the configuration file.
            shown_as: its name in messages; its path if "".

        Raises:
            SettingsError: it cannot be read, or a setting is unknown or has a wrong value.
        """
        name = shown_as or str(file)
        document = _read_yaml(file, name)
        section = document.get("interpool", {})
        if not isinstance(section, dict | None):
            raise SettingsError(f"{name}: `interpool:` must hold settings by name, not {shown(section)}")
        usual = {"state": "worker"} if any(document.get(key) for key in KEEPS_STATE) else {}
        try:
            return cls.model_validate({**usual, **(section or {})})
        except ValidationError as error:
            raise SettingsError(f"{name}: {_explain(error, 'interpool.', cls)}") from None


class HostSettings(BaseModel):
    """What the environment says to the pool host."""

    model_config = ConfigDict(frozen=True)

    interpreters: Interpreters = Field(
        default_factory=lambda: min(256, len(os.sched_getaffinity(0))),
        alias="INTERPOOL_INTERPRETERS",
    )
    max_interpreters: Interpreters | None = Field(default=None, alias="INTERPOOL_CEILING")
    share: Share | None = Field(default=None, alias="INTERPOOL_SHARE")
    call_limit_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, alias="INTERPOOL_CALL_LIMIT_S"
    )
    idle_model_s: Annotated[float, Field(ge=0)] = Field(default=600.0, alias="INTERPOOL_IDLE_MODEL_S")
    memory_mb: Annotated[int, Field(ge=256)] | None = Field(default=None, alias="INTERPOOL_MEMORY_MB")
    drain_s: Annotated[float, Field(ge=0, le=3600)] = Field(default=0.0, alias="INTERPOOL_DRAIN_S")
    idle_exit_s: Annotated[float, Field(ge=0)] = Field(default=30.0, alias="INTERPOOL_IDLE_EXIT_S")
    signature_keys: KeyFiles = Field(default=(), alias="INTERPOOL_SIGNATURE_KEYS")
    verify: Literal["structure", "digests"] = Field(default="digests", alias="INTERPOOL_VERIFY")
    self_test: bool = Field(default=False, alias="INTERPOOL_SELF_TEST")
    stock_archives: Literal["allow", "refuse"] | None = Field(default=None, alias="INTERPOOL_STOCK_ARCHIVES")
    direct_address: str = Field(default="", alias="INTERPOOL_DIRECT_ADDRESS")
    direct_access_log: bool = Field(default=False, alias="INTERPOOL_DIRECT_ACCESS_LOG")
    log: Literal["text", "json"] = Field(default="text", alias="INTERPOOL_LOG")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", alias="INTERPOOL_LOG_LEVEL"
    )
    log_to: Literal["file", "stdout"] = Field(default="file", alias="INTERPOOL_LOG_TO")
    log_mb: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(default=100, alias="INTERPOOL_LOG_MB")
    log_files: Annotated[int, Field(ge=1)] = Field(default=5, alias="INTERPOOL_LOG_FILES")
    ordinary_archives: Literal["stock", "pool"] = Field(default="stock", alias="INTERPOOL_ORDINARY_ARCHIVES")

    @model_validator(mode="after")
    def _signatures_can_be_checked(self) -> Self:
        if not self.signature_keys:
            return self
        if self.verify == "structure":
            raise ValueError(
                "INTERPOOL_SIGNATURE_KEYS and INTERPOOL_VERIFY=structure contradict each other: what is "
                "signed is the digests, and they would not be checked"
            )
        if importlib.util.find_spec("model_signing") is None:
            raise ValueError("INTERPOOL_SIGNATURE_KEYS needs model-signing: pip install 'interpool[sign]'")
        return self

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """The host's settings; raises SettingsError, also for a variable that interpool does not know."""
        if wrong := unknown_variables(dict(environment)):
            raise SettingsError(f"environment: {wrong}")
        # An empty variable counts as unset, except for the one whose absence would turn checks off.
        given = {
            name: value for name, value in environment.items() if value or name == "INTERPOOL_SIGNATURE_KEYS"
        }
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise SettingsError(f"environment: {_explain(error, '', cls)}") from None

    def share_of(self, model: ModelSettings, interpreters: int) -> int | None:
        """The most interpreters that the model may have at once; None: all of them.

        Args:
            model: its own settings.
            interpreters: the pool's minimum size.
        """
        share = model.share if model.share is not None else self.share
        if isinstance(share, float):
            return max(1, int(share * interpreters))
        return share

    def pool_size(self, wanted: int | None, *, isolated: bool = False) -> tuple[int, int]:
        """Minimum and maximum size of a pool whose first model asks for ``wanted`` interpreters.

        Args:
            wanted: the number that the model names; None if it names none.
            isolated: whether the pool serves that model only. It begins with one interpreter if the model
                names no number.
        """
        if isolated and wanted is None:
            return 1, self.interpreters
        smallest = wanted or self.interpreters
        if self.max_interpreters is not None:
            return smallest, max(smallest, self.max_interpreters)
        named = wanted is not None or "interpreters" in self.model_fields_set
        return smallest, smallest if named else min(256, 4 * smallest)


def own_pool(model_dir: str | Path) -> str:
    """The name of the pool that serves the model in that directory and no other."""
    return OWN_POOL + hashlib.sha256(os.fsencode(model_dir)).hexdigest()[:16]


def model_manifest(model_dir: str | Path) -> dict[str, Any]:
    """The model's part of an extracted archive's manifest, whose names stay inside the directory.

    Raises:
        NameRefused: one leads out.
        SettingsError: it cannot be read.
    """
    path = Path(model_dir) / MANIFEST
    try:
        model = read_json(path)["model"]
    except FileNotFoundError:
        raise SettingsError(f"{model_dir} holds no {MANIFEST}, so it is no archive of TorchServe's") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{path} is not a TorchServe manifest: {error}") from error
    if not isinstance(model, dict):
        raise SettingsError(f"{path} is not a TorchServe manifest: `model` is {shown(model)}")
    try:
        require_inside(model, path, model_dir)
    except StructureError as error:
        raise NameRefused(str(error)) from None
    return model


def is_refused(model_dir: str | Path) -> bool:
    """Whether a model is refused, because a name in its manifest leads out of its directory."""
    try:
        model_manifest(model_dir)
    except NameRefused:
        return True
    except SettingsError:
        return False
    return False


def model_configuration(model_dir: str | Path) -> dict[str, Any]:
    """What a model's configuration file says to TorchServe, {} if it has none; raises SettingsError."""
    file = _configuration_file(model_dir)
    return _read_yaml(file, str(file)) if file else {}


def startup_timeout(model_dir: str | Path) -> int | None:
    """Seconds that TorchServe waits for a load of the model, None if its configuration does not say.

    Raises SettingsError.
    """
    value = model_configuration(model_dir).get(STARTUP_TIMEOUT)
    # TorchServe passes over what is no positive int of Java's.
    return int(value) if type(value) is int and 0 < value < 1 << 31 else None


def _configuration_file(model_dir: str | Path) -> Path | None:
    name = model_manifest(model_dir).get("configFile")
    return Path(model_dir) / str(name) if name else None


def _read_yaml(file: Path, shown_as: str) -> dict[str, Any]:
    try:
        document = read_yaml(file)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{shown_as} cannot be read: {error}") from error
    return document if isinstance(document, dict) else {}


def _explain(error: ValidationError, prefix: str, settings: type[BaseModel]) -> str:
    known = ", ".join(field.alias or name for name, field in settings.model_fields.items())
    lines = []
    for problem in error.errors():
        name = prefix + ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            lines.append(f"unknown setting `{name}`; the settings are: {known}")
        elif problem["type"] == "value_error":
            said = str(problem["ctx"]["error"])
            lines.append(f"`{name}`: {said}" if name else said)
        else:
            lines.append(f"`{name}`: {problem['msg']}, not {shown(problem['input'])}")
    return "; ".join(lines)


def main(model_dir: str) -> None:
    """Print the pool that the model in ``model_dir`` names; nothing if it names none, or is refused."""
    with contextlib.suppress(SettingsError):
        settings = ModelSettings.of_model(model_dir)
        if settings.isolation == "process":
            print(own_pool(model_dir))
        elif settings.model_fields_set & {"pool", "isolation"}:
            print(settings.pool)


if __name__ == "__main__":
    main(sys.argv[1])
