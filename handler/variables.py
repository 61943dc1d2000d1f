"""Describes the variables of the environment that are no fields of ``HostSettings``, for docs/settings.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field


class OtherVariables(BaseModel):
    """The other variables that a user may set. The code that needs one reads it for itself."""

    runtime_dir: Path = Field(
        alias="INTERPOOL_RUNTIME_DIR",
        description="Sockets and locks. An absolute path, of a directory that stays as long as a server "
        "runs. So name none that goes with a login session (`$XDG_RUNTIME_DIR`), and none from which old "
        "files are removed.",
        json_schema_extra={"default_text": "`/tmp/interpool-UID`"},
    )
    start_ahead: bool = Field(
        default=True,
        alias="INTERPOOL_START_AHEAD",
        description="`1`: `interpool serve` starts the default pool's host [with the "
        "server](serving.md#from-the-start-to-the-first-answer). `0`: its first worker does.",
    )
    metrics_address: str = Field(
        alias="INTERPOOL_METRICS_ADDRESS",
        description="The address, `HOST:PORT`, at which `interpool serve` and `interpool exporter` answer "
        "with the pools' [metrics](monitoring.md#metrics).",
        json_schema_extra={"default_text": "none; for `exporter`, `127.0.0.1:9191`"},
    )
    cache: Path = Field(
        alias="INTERPOOL_CACHE",
        description="Private copies ([the cache](cache.md#the-cache)). If it is set, also what `interpool "
        "home` prints.",
        json_schema_extra={"default_text": "`$XDG_CACHE_HOME/interpool`, else `~/.cache/interpool`"},
    )
    cache_days: Annotated[float, Field(ge=0, json_schema_extra={"unit": "days"})] = Field(
        default=14,
        alias="INTERPOOL_CACHE_DAYS",
        description="Age after which private copies that no process has used are removed. `0`: none are for "
        "their age.",
    )
    cache_gb: Annotated[float, Field(ge=0, json_schema_extra={"unit": "10^9 bytes"})] = Field(
        default=10,
        alias="INTERPOOL_CACHE_GB",
        description="Size of the cache above which the copies that were unused longest are removed sooner. "
        "`0`: it may have any.",
    )
    full_import: bool = Field(
        default=False,
        alias="INTERPOOL_FULL_IMPORT",
        description="`1`: every interpreter imports all of torch when it starts. Each takes [43 MB and 0.8 s "
        "of CPU time](benchmarks.md#memory) more. `0`: only the first one does, and that only if the cache "
        "has [no note](architecture.md#what-an-interpreter-costs) of an earlier one. Others import what "
        "inference does not need (`torch.fx`, `torch.export`, `torch.ao`, `torch.distributions`, …) when it "
        "is first touched.",
    )
    untested: bool = Field(
        default=False,
        alias="INTERPOOL_UNTESTED",
        description="`1`: go on with a Python or torch that interpool was not tested with, if all private "
        "names are there ([versions](versions.md)).",
    )
    libpython: Path = Field(
        alias="INTERPOOL_LIBPYTHON",
        description="The shared libpython, if it lies in an unusual place. Refused if it is not [this "
        "Python's](installing.md#which-pythons).",
        json_schema_extra={"default_text": "found"},
    )
    prepared: Path = Field(
        alias="INTERPOOL_PREPARED",
        description="What [a C++ program](embedding.md) starts interpreters from: a file that `interpool "
        "prepare` wrote, or a bundle's directory.",
        json_schema_extra={
            "default_text": "the bundle of its `libinterpool.so`, else `prepared.txt` in the cache"
        },
    )
    key_password: str = Field(
        alias="INTERPOOL_KEY_PASSWORD",
        description="The private key's password, [for `interpool sign`](verification.md#sign).",
        json_schema_extra={"default_text": "none"},
    )
