"""Settings of the serving side, validated: an unknown name is refused, not ignored.

The tables in docs/settings.md are made of the descriptions here. A model's settings stand under
``interpool:`` in its model-config.yaml. The environment that TorchServe is started with configures the host.

As a program (``python -m interpool.handler.config MODEL_DIR``) it prints the name of the pool that a model's
settings name. The line is empty if they name none or are refused.
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
    WithJsonSchema,
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
PositiveSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False, json_schema_extra={"unit": "s"})]
Seconds = Annotated[float, Field(ge=0, json_schema_extra={"unit": "s"})]


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


Share = Annotated[
    int | float,
    BeforeValidator(_share_of),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": 256},
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            ]
        }
    ),
]


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

    pool: PoolName = Field(
        default=DEFAULT_POOL,
        description="The pool that serves the model. Each pool is a process: a crash takes down one pool's "
        "models. Letters, digits, `.-_`, 32 at most; not `own-…`.",
    )
    interpreters: Interpreters | None = Field(
        default=None,
        description="Interpreters in that pool. The first model that comes to the pool decides. For later "
        "ones the model log says how many there are.",
        json_schema_extra={"default_text": "`INTERPOOL_INTERPRETERS`; 1 with `isolation: process`"},
    )
    state: Literal["interpreter", "worker"] = Field(
        default="interpreter",
        description="What shares a handler's [state](pools.md#what-a-handler-remembers). `interpreter`: all "
        "workers of the model, in each interpreter. `worker`: each worker has its own.",
        json_schema_extra={"default_text": "`interpreter`; `worker` with sequence or continuous batching"},
    )
    share: Share | None = Field(
        default=None,
        description="The most interpreters that the model's batches may have at once. A number, or a part "
        "of the pool's minimum size, as `0.5` (rounded down, at least one). Its other batches wait.",
        json_schema_extra={"default_text": "`INTERPOOL_SHARE`"},
    )
    call_limit: PositiveSeconds | None = Field(
        default=None,
        description="How long the model's code may take for one batch, loading it not counted. The batch "
        "answers 500 then, [as a call that does not come back](failures.md#calls-that-do-not-come-back).",
        json_schema_extra={"default_text": "`INTERPOOL_CALL_LIMIT_S`"},
    )
    tracebacks: bool = Field(
        default=False,
        description="Whether a request that made the model raise is answered with the traceback. The log "
        "has it either way.",
    )
    self_test: bool = Field(
        default=False,
        description="Whether the model is served only if it answers the example inputs in its archive as it "
        "did when it was packed.",
    )
    ordinary: Literal["pool", "stock"] = Field(
        default="pool",
        description="`stock`: TorchServe's own workers serve this [ordinary archive](ordinary-archives.md), "
        "also if others are in the pool.",
    )
    isolation: Literal["auto", "shared", "own", "process"] = Field(
        default="auto",
        description="What the model shares with others. `auto`: interpreters, until it leaves "
        "[traces](failures.md#models-that-change-what-is-not-their-own) there; then it has its own. `own`: "
        "it has its own from the beginning. `shared`: interpreters, without a search for traces. `process`: "
        "its pool is a process that serves no other model; `pool` is not used then. Any of these, or "
        "`pool`, also brings an [ordinary archive](ordinary-archives.md) into a pool if the server leaves "
        "these to stock workers.",
    )

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
        description="Interpreters of a pool whose first model names no number.",
        json_schema_extra={"default_text": "one for each core"},
    )
    max_interpreters: Interpreters | None = Field(
        default=None,
        alias="INTERPOOL_MAX_INTERPRETERS",
        description="The maximum size that a pool [may grow to](pools.md#how-a-pool-grows).",
        json_schema_extra={
            "default_text": "the number of interpreters if one is named, else 4 for each core"
        },
    )
    share: Share | None = Field(
        default=None,
        alias="INTERPOOL_SHARE",
        description="The `share` of models that name none.",
        json_schema_extra={"default_text": "all interpreters"},
    )
    call_limit_s: PositiveSeconds | None = Field(
        default=None,
        alias="INTERPOOL_CALL_LIMIT_S",
        description="The `call_limit` of models that name none.",
        json_schema_extra={"default_text": "none: TorchServe's `responseTimeout` ends a call"},
    )
    idle_model_s: Seconds = Field(
        default=600.0,
        alias="INTERPOOL_IDLE_MODEL_S",
        description="Time without a request after which all interpreters but one [drop a "
        "model](pools.md#when-models-are-loaded-and-dropped). `0`: never.",
    )
    memory_mb: Annotated[int, Field(ge=256, json_schema_extra={"unit": "2^20 bytes"})] | None = Field(
        default=None,
        alias="INTERPOOL_MEMORY_MB",
        description="Memory that a pool's process may have, pages of files not counted. [What asks for more "
        "is refused](failures.md#memory).",
        json_schema_extra={"default_text": "none"},
    )
    drain_s: Annotated[Seconds, Field(le=3600)] = Field(
        default=0.0,
        alias="INTERPOOL_DRAIN_S",
        description="Time after SIGTERM in which `interpool serve --foreground` says that it is not ready "
        "and still answers ([drain and end](upgrades.md#drain-and-end)). `0`: SIGTERM ends it at once.",
    )
    idle_exit_s: Seconds = Field(
        default=30.0,
        alias="INTERPOOL_IDLE_EXIT_S",
        description="How long a host stays after its last worker left.",
    )
    signature_keys: KeyFiles = Field(
        default=(),
        alias="INTERPOOL_SIGNATURE_KEYS",
        description="PEM files of public keys, absolute paths separated by `:`. Only archives that one of "
        "them has signed are [served](security.md#archives); start the server with `interpool serve`. Set "
        "and empty is an error.",
        json_schema_extra={"default_text": "none"},
    )
    verify: Literal["structure", "digests"] = Field(
        default="digests",
        alias="INTERPOOL_VERIFY",
        description="`digests`: the SHA-256 of every file in an archive is checked before it is served. "
        "`structure`: it is not; not together with keys.",
    )
    self_test: bool = Field(
        default=False,
        alias="INTERPOOL_SELF_TEST",
        description="`1`: as if every model had `self_test: true`.",
    )
    stock_archives: Literal["allow", "refuse"] | None = Field(
        default=None,
        alias="INTERPOOL_STOCK_ARCHIVES",
        description="Whether archives that are not hermetic are served at all, by TorchServe's own workers "
        "or by a pool: nothing in them can be checked. `allow` beside keys serves them unsigned.",
        json_schema_extra={"default_text": "`refuse` with keys, else `allow`"},
    )
    direct_address: str = Field(
        default="",
        alias="INTERPOOL_DIRECT_ADDRESS",
        description="Where the default pool [answers HTTP itself](direct.md): `HOST:PORT`, or `unix:/PATH`. "
        "`interpool serve --direct` sets it.",
        json_schema_extra={"default_text": "none"},
    )
    direct_access_log: bool = Field(
        default=False,
        alias="INTERPOOL_DIRECT_ACCESS_LOG",
        description="`1`: the host's log has a line for each request at the direct address, in the form of "
        "TorchServe's access log.",
    )
    log: Literal["text", "json"] = Field(
        default="text",
        alias="INTERPOOL_LOG",
        description="`json`: each line of the host's log, and each that is logged in a call, is a JSON "
        "object ([logs](monitoring.md#logs)).",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", alias="INTERPOOL_LOG_LEVEL", description="The least level of the host's log."
    )
    log_to: Literal["file", "stdout"] = Field(
        default="file",
        alias="INTERPOOL_LOG_TO",
        description="Where the host's log is: a `file` beside TorchServe's, or TorchServe's own `stdout`.",
    )
    log_mb: Annotated[float, Field(ge=0, allow_inf_nan=False, json_schema_extra={"unit": "10^6 bytes"})] = (
        Field(
            default=100,
            alias="INTERPOOL_LOG_MB",
            description="Size of that file above which the next one is begun. `0`: it may have any.",
        )
    )
    log_files: Annotated[int, Field(ge=1)] = Field(
        default=5,
        alias="INTERPOOL_LOG_FILES",
        description="How many earlier files are kept, as `interpool_host_POOL.log.1` and so on.",
    )
    ordinary_archives: Literal["stock", "pool"] = Field(
        default="stock",
        alias="INTERPOOL_ORDINARY_ARCHIVES",
        description="Who serves archives that are not hermetic: `stock`, TorchServe's own workers, or "
        "`pool`, [if they can share a process](ordinary-archives.md).",
    )

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
    directory = os.path.realpath(model_dir)  # messages name an owner's folder, not the link to it
    path = Path(directory) / MANIFEST
    try:
        model = read_json(path)["model"]
    except FileNotFoundError:
        raise SettingsError(f"{directory} holds no {MANIFEST}, so it is no archive of TorchServe's") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{path} is not a TorchServe manifest: {error}") from error
    if not isinstance(model, dict):
        raise SettingsError(f"{path} is not a TorchServe manifest: `model` is {shown(model)}")
    try:
        require_inside(model, path, directory)
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
    return Path(os.path.realpath(model_dir)) / str(name) if name else None


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
    """Print the pool that the model in ``model_dir`` names; an empty line if it names none, or is refused."""
    pool = ""
    with contextlib.suppress(SettingsError):
        settings = ModelSettings.of_model(model_dir)
        if settings.isolation == "process":
            pool = own_pool(model_dir)
        elif settings.model_fields_set & {"pool", "isolation"}:
            pool = settings.pool
    print(pool)


if __name__ == "__main__":
    main(sys.argv[1])
