"""Settings of the serving side, validated: an unknown name is refused, not ignored.

A model's settings stand under ``interpool:`` in its model-config.yaml:

====================  ===========  ============================================================
key                   default      meaning
====================  ===========  ============================================================
``pool``              ``default``  the pool host that serves the model. Models that name
                                   different pools live in different processes: a crash takes
                                   down one pool's models only. Letters, digits, ``.-_``; 32 at
                                   most.
``interpreters``      (below)      interpreters in that pool, 1 to 256. Counts when the pool's
                                   host starts; a host that runs keeps the number it has.
``tracebacks``        ``false``    put the model's traceback into the answer of a request that
                                   made it raise. It is in the model log either way.
====================  ===========  ============================================================

The environment TorchServe is started with configures the host:

===========================  ==============  ===================================================
variable                     default         meaning
===========================  ==============  ===================================================
``INTERPOOL_INTERPRETERS``   cores           interpreters in a pool whose models name no number
``INTERPOOL_CEILING``        see below       interpreters that a pool may grow to, 1 to 256
``INTERPOOL_IDLE_EXIT_S``    ``30``          seconds after its last worker left that a host stays
``INTERPOOL_RUNTIME_DIR``    see below       directory for sockets and locks, made with mode 0700
``INTERPOOL_CACHE``          see below       directory for overlays and private copies
===========================  ==============  ===================================================

A pool grows while requests wait and most running calls wait for something other than the CPU.
Where somebody names a number of interpreters, the pool has exactly that many unless a ceiling is
set; where nobody does, it may grow to four times the number of cores.

The runtime directory is ``$XDG_RUNTIME_DIR/interpool``, else ``/tmp/interpool-UID``; the cache
``$XDG_CACHE_HOME/interpool``, else ``~/.cache/interpool``.

As a program (``python -m interpool.handler.config MODEL_DIR``) it prints the name of the pool
that a model's settings name, and nothing if they are refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from interpool.handler.errors import SettingsError
from interpool.handler.shim import DEFAULT_POOL

Interpreters = Annotated[int, Field(ge=1, le=256)]


class ModelSettings(BaseModel):
    """What stands under ``interpool:`` in a model's configuration file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pool: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,32}$")] = DEFAULT_POOL
    interpreters: Interpreters | None = None
    tracebacks: bool = False

    @classmethod
    def of_model(cls, model_dir: str | Path) -> Self:
        """The settings of the model extracted in ``model_dir``; raises SettingsError."""
        name = model_manifest(model_dir).get("configFile")
        return cls.of_file(Path(model_dir) / str(name)) if name else cls()

    @classmethod
    def of_file(cls, file: Path) -> Self:
        """The settings in a model's configuration file; raises SettingsError."""
        section = _read_yaml(file).get("interpool")
        if section is None:
            return cls()
        if not isinstance(section, dict):
            raise SettingsError(f"{file}: `interpool:` must hold settings by name, not {section!r}")
        try:
            return cls.model_validate(section)
        except ValidationError as error:
            raise SettingsError(f"{file}: {_explain(error, 'interpool.', cls)}") from None


class HostSettings(BaseModel):
    """What the environment says to the pool host."""

    model_config = ConfigDict(frozen=True)

    interpreters: Interpreters = Field(
        default_factory=lambda: min(256, len(os.sched_getaffinity(0))),
        alias="INTERPOOL_INTERPRETERS",
    )
    ceiling: Interpreters | None = Field(default=None, alias="INTERPOOL_CEILING")
    idle_exit_s: Annotated[float, Field(ge=0)] = Field(default=30.0, alias="INTERPOOL_IDLE_EXIT_S")

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """The host's settings; raises SettingsError."""
        given = {name: value for name, value in environment.items() if value}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise SettingsError(f"environment: {_explain(error, '', cls)}") from None

    def pool_size(self, wanted: int | None) -> tuple[int, int]:
        """Floor and ceiling of a pool whose first model asks for ``wanted`` interpreters."""
        floor = wanted or self.interpreters
        if self.ceiling is not None:
            return floor, max(floor, self.ceiling)
        named = wanted is not None or "interpreters" in self.model_fields_set
        return floor, floor if named else min(256, 4 * floor)


def model_manifest(model_dir: str | Path) -> dict[str, Any]:
    """The model's part of an extracted archive's manifest; raises SettingsError."""
    path = Path(model_dir) / "MAR-INF" / "MANIFEST.json"
    try:
        model = json.loads(path.read_text(encoding="utf-8"))["model"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{path} is not a TorchServe manifest: {error}") from error
    if not isinstance(model, dict):
        raise SettingsError(f"{path} is not a TorchServe manifest: `model` is {model!r}")
    return model


def _read_yaml(file: Path) -> dict[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingsError(f"{file} cannot be read: {error}") from error
    return document if isinstance(document, dict) else {}


def _explain(error: ValidationError, prefix: str, settings: type[BaseModel]) -> str:
    known = ", ".join(field.alias or name for name, field in settings.model_fields.items())
    lines = []
    for problem in error.errors():
        name = prefix + ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            lines.append(f"unknown setting `{name}`; the settings are: {known}")
        else:
            lines.append(f"`{name}`: {problem['msg']}, not {problem['input']!r}")
    return "; ".join(lines)


def main(model_dir: str) -> None:
    """Print the pool of the model in ``model_dir``, or nothing if its settings are refused."""
    with contextlib.suppress(SettingsError):
        print(ModelSettings.of_model(model_dir).pool)


if __name__ == "__main__":
    main(sys.argv[1])
