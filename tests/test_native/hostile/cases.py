"""What all hostile archives are made from, and what is said of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from archives import MANIFEST_MEMBER as MANIFEST
from archives import SCALE, TORCH, build_package, manifest_of, module_records, read_members
from test_native.hostile.zips import Member, zip_of

from interpool.native.errors import (
    ArchiveError,
    DigestError,
    ManifestError,
    PickleError,
    StructureError,
)

PICKLE = "model/model.pkl"
SOURCE = "scale_model.py"
STORAGE = ".data/0.storage"
EXTERNS = ".data/extern_modules"

Stage = Literal["structure", "manifest", "digests", "unpickling"]

ERRORS: dict[Stage, type[ArchiveError]] = {
    "structure": StructureError,
    "manifest": ManifestError,
    "digests": DigestError,
    "unpickling": PickleError,
}


@dataclass(frozen=True)
class Case:
    """One hostile archive.

    Attributes:
        name: short.
        tries: what it is after.
        stage: where it is refused.
        rule: by which rule.
        build: from a good archive to its bytes.
        error: the refusal's class, if it is not the stage's own.
    """

    name: str
    tries: str
    stage: Stage
    rule: str
    build: Callable[[Good], bytes]
    error: type[ArchiveError] | None = None

    @property
    def refused_by(self) -> type[ArchiveError]:
        return self.error or ERRORS[self.stage]


@dataclass(frozen=True)
class Good:
    """A good archive, to be spoiled: its module and its pickle leave traces when they run.

    Attributes:
        members: content by name, as torch.package wrote them.
        traces: folder; ``imported`` appears there when the module runs, ``called`` is for a
            pickle's payload to write.
        globals: what its manifest lists.
    """

    members: dict[str, bytes]
    traces: Path
    globals: tuple[str, ...] = ()
    change: tuple[Callable[[dict[str, Any]], None], ...] = field(default=())

    @property
    def called(self) -> str:
        return str(self.traces / "called")

    def having(self, members: dict[str, bytes]) -> Good:
        return replace(self, members={**self.members, **members})

    def taking(self, *names: str) -> Good:
        """With these ``module:name`` as further globals, their modules external."""
        modules = sorted({name.partition(":")[0] for name in names})
        externs = sorted({*self.members[EXTERNS].decode().split(), *modules})
        return replace(
            self.having({EXTERNS: "".join(f"{each}\n" for each in externs).encode()}),
            globals=tuple(sorted({*self.globals, *names})),
        )

    def saying(self, change: Callable[[dict[str, Any]], None]) -> Good:
        """With a manifest changed in place by ``change``."""
        return replace(self, change=(*self.change, change))

    def manifest(self) -> dict[str, Any]:
        externs = self.members[EXTERNS].decode().split()
        manifest: dict[str, Any] = {
            **manifest_of(
                self.members,
                entry={"package": "model", "resource": "model.pkl", "kind": "module"},
                externs=[TORCH],
                modules=module_records(externs, {"scale_model": ()}),
                globals=list(self.globals),
            )
        }
        for change in self.change:
            change(manifest)
        return manifest

    def sealed(self, manifest: bytes | None = None) -> list[Member]:
        """The zip's members, with a manifest that is right unless another is given."""
        text = json.dumps(self.manifest()).encode() if manifest is None else manifest
        contents = {**self.members, MANIFEST: text}
        return [Member(f"archive/{name}", data) for name, data in contents.items()]

    def bytes(self, manifest: bytes | None = None) -> bytes:
        return zip_of(self.sealed(manifest))


def build_good(folder: Path) -> Good:
    """A Scale by 3 in a real torch.package, taken apart."""
    traces = folder / "traces"
    traces.mkdir()
    source = f"""
import os
import pathlib
from os import system
pathlib.Path({str(traces / "imported")!r}).touch()
{SCALE}
def make():
    return Scale(3)
"""
    path = build_package(folder / "good.pt", {SOURCE: source}, "scale_model:make")
    (traces / "imported").unlink()
    return Good(read_members(path), traces, GLOBALS)


# Of the good archive's pickle.
GLOBALS = (
    "builtins:set", "collections:OrderedDict", "torch._utils:_rebuild_parameter",
    "torch._utils:_rebuild_tensor_v2", "torch:FloatStorage",
)  # fmt: skip
