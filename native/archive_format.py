"""Where things lie in a hermetic archive, and what its manifest says.

A hermetic archive is a torch.package file with members of our own, in a package
whose name holds a hyphen: no Python source can have that name, so the members can
never hide, or be hidden by, a module of the model's.

Standard library only: packers, readers and servers all import this.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, TypedDict, cast, get_args

from interpool.native.errors import ArchiveError

MANIFEST_PACKAGE: Final = "interpool-archive"
MANIFEST_RESOURCE: Final = "manifest.json"
ENTRY_PACKAGE: Final = "interpool-archive"
ENTRY_RESOURCE: Final = "entry.pkl"
SELF_TEST_RESOURCE: Final = "self-test.pkl"
SIGNATURE_RESOURCE: Final = "signature.json"

SCHEMA: Final = 2

EntryKind = Literal["module", "callable", "handler"]
"""``module``: a torch.nn.Module. ``handler``: an object with ``handle``, or with
``preprocess``, ``inference`` and ``postprocess``. ``callable``: any other object
that can be called."""

Action = Literal["intern", "extern", "mock"]


class Entry(TypedDict):
    """The object that the archive exists for."""

    package: str
    resource: str
    kind: EntryKind


class MadeWith(TypedDict):
    """Versions of what wrote the archive."""

    python: str
    torch: str
    interpool: str


class Extern(TypedDict):
    """A third-party top-level module that the archive takes from where it is served."""

    module: str
    distribution: str
    version: str


class Importer(TypedDict):
    """Who asked for a module: a module and the line of its source, or a pickle and 0."""

    module: str
    line: int


class ModuleRecord(TypedDict):
    """What was done with one module, why, and who asked for it (nobody: the user named it)."""

    action: Action
    reason: str
    imported_by: list[Importer]


class SelfTest(TypedDict):
    """A pickle of example inputs and the answer that they gave when the archive was made.

    See ``interpool.archiver_ext.self_test``. ``rtol`` and ``atol`` bound the difference of
    two answers as in torch.testing.assert_close.
    """

    package: str
    resource: str
    seed: int
    rtol: float
    atol: float


class Manifest(TypedDict):
    """The manifest's JSON.

    ``modules`` says of each module met what was done with it. ``externs`` names what must be
    installed where the archive is served, the standard library left out. ``globals`` lists,
    as ``module:name``, what its pickles take from external modules, and they get nothing
    else. ``data`` lists members that code finds through ``__file__``. ``inputs`` describes
    the example inputs. ``files`` maps each member's name, without the zip's root directory,
    to the SHA-256 of its content in hex; the manifest itself and its signature are the only
    members left out.
    """

    schema: int
    entry: Entry
    made_with: MadeWith
    externs: list[Extern]
    modules: dict[str, ModuleRecord]
    globals: list[str]
    data: list[str]
    inputs: Any
    self_test: SelfTest | None
    files: dict[str, str]


def parse_manifest(text: str | bytes, archive: str) -> Manifest:
    """Read a manifest.

    Args:
        text: the member's content.
        archive: the archive's file name, for messages.

    Raises:
        ArchiveError: not JSON, of another schema, or without a usable entry.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArchiveError(f"{archive}: its manifest is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ArchiveError(f"{archive}: its manifest is not a JSON object")
    if value.get("schema") != SCHEMA:
        raise ArchiveError(
            f"{archive}: its manifest has schema {value.get('schema')!r}, this interpool reads "
            f"schema {SCHEMA}; pack it again with this version"
        )
    entry = value.get("entry")
    if (
        not isinstance(entry, dict)
        or not all(isinstance(entry.get(key), str) for key in ("package", "resource"))
        or entry.get("kind") not in get_args(EntryKind)
    ):
        raise ArchiveError(f"{archive}: its manifest names no usable entry ({entry!r})")
    files = value.get("files")
    if not isinstance(files, dict) or not all(isinstance(digest, str) for digest in files.values()):
        raise ArchiveError(f"{archive}: its manifest lists no digests under 'files'")
    return cast("Manifest", value)
