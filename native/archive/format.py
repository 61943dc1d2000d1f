"""Names of an archive's members, and the types of its manifest.

A hermetic archive is a torch.package file with additional members. They are in a package whose name is not a
valid module name, so they cannot collide with the model's modules.

Standard library only: packers, readers and servers import this.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final, Literal, TypedDict

from interpool.native.archive.typed_json import BadJson, shown, strict_loads, typed
from interpool.native.errors import ManifestError

MANIFEST_PACKAGE: Final = "interpool-archive"
MANIFEST_RESOURCE: Final = "manifest.json"
ENTRY_PACKAGE: Final = "interpool-archive"
ENTRY_RESOURCE: Final = "entry.pkl"
SELF_TEST_RESOURCE: Final = "self-test.pkl"
REQUEST_RESOURCE: Final = "request"
"""Its suffix depends on the content type."""
SIGNATURE_RESOURCE: Final = "signature.json"

NAMESPACE_SOURCE: Final = "# A namespace package: a folder without an __init__.py.\n"
"""An archive contains this in place of the missing ``__init__.py``."""

SCHEMA: Final = 5
MOST_MANIFEST_BYTES: Final = 64 << 20
TOLERANCES_BELOW: Final = 1e300

EntryKind = Literal["module", "callable", "handler"]
"""``module``: a torch.nn.Module. ``handler``: an object with ``handle``, or with
``preprocess``, ``inference`` and ``postprocess``. ``callable``: any other object
that can be called."""

Action = Literal["intern", "extern", "mock"]

Batches = Literal["stack", "batch", "each"]
"""How requests become calls. ``stack``: each request is one sample, and several are stacked.
``batch``: each request is a batch, and several are concatenated. ``each``: one call per request."""

Parts = Any
"""How a batch's answer is divided among its requests, as JSON. ``"rows"``: along the first dimension, or by
the items of a list. ``"none"``: the answer is None. ``{"list": [Parts, ...]}`` and
``{"dict": {name: Parts}}``: each item separately."""
_DEEPEST_PARTS: Final = 32


class Origin(StrEnum):
    """The source of a decision about a module."""

    USER = "user"
    """An option, such as ``--extern GLOB``."""
    PLAN = "plan"
    """A line of the plan."""
    PROJECT = "project"
    """No decision was needed: it belongs to the project."""
    STANDARD_LIBRARY = "standard_library"
    """No decision was needed: it belongs to the standard library of the Python that packed the archive."""
    SERVER = "server"
    """No decision was needed: every server has it."""
    RULES = "rules"
    """Packing's rules, or a correction after a trial load."""


class Entry(TypedDict):
    """The object that the archive serves."""

    package: str
    resource: str
    kind: EntryKind


class MadeWith(TypedDict):
    """Versions of the programs that wrote the archive."""

    python: str
    torch: str
    interpool: str


class Extern(TypedDict):
    """A third-party top-level module that the archive imports from the server's environment.

    Distribution and version are "" if they would not identify it. A package from a directory or repository
    may share its name with another package on an index.
    """

    module: str
    distribution: str
    version: str


class Importer(TypedDict):
    """The importer of a module: a module and the line of its source, or a pickle and 0."""

    module: str
    line: int


class ModuleRecord(TypedDict):
    """The action for one module, the decision's origin and reason, and the module's importers.

    ``imported_by`` is empty if the user named the module.
    """

    action: Action
    origin: Origin
    reason: str
    imported_by: list[Importer]


class SelfTest(TypedDict):
    """A pickle of example inputs and of the model's answer when the archive was made.

    See ``interpool.archiver_ext.verify.self_test``. ``rtol`` and ``atol`` bound the difference of two
    floating-point numbers as in torch.testing.assert_close.
    """

    package: str
    resource: str
    seed: int
    rtol: float
    atol: float


class Serving(TypedDict):
    """How to serve an entry that is not a handler.

    ``batches`` is None if the user has not chosen, and then means ``each``. ``parts`` says how packing proved
    that a batch's answer can be divided; without it, requests are served as ``each``. ``grad``: a module runs
    with gradients, and not in inference mode. ``train_mode``: a module keeps the mode in which it was packed,
    and is not switched to evaluation mode.
    """

    batches: Batches | None
    parts: Parts
    grad: bool
    train_mode: bool


class _RequestRecord(TypedDict):
    package: str
    resource: str
    content_type: str
    part: int | None


class RequestRecord(_RequestRecord, total=False):
    """An HTTP request that was answered when the archive was made: its body's member and content type.

    ``part`` is the index of the matching part of the self-test's answer: a sample, or a row of a handler's
    batch. None means the whole answer. ``answer_bytes`` is the size of the encoded answer; old packers omit
    it.
    """

    answer_bytes: int


SERVED_PLAINLY: Final[Serving] = {"batches": None, "parts": None, "grad": False, "train_mode": False}
"""The default: each request is one call."""


class Manifest(TypedDict):
    """The manifest's JSON.

    Attributes:
        schema: the version of this format.
        entry: the object that the archive serves.
        made_with: versions of the programs that wrote the archive.
        externs: modules that the server must have installed, without the standard library.
        modules: the action for each module that packing met.
        globals: the external ``module:name`` globals that its pickles may use, and no others.
        data: members that code finds through ``__file__``, and empty folders, whose names end in a slash.
        inputs: describes the example inputs.
        self_test: example inputs with their answer.
        serving: how to serve an entry that is not a handler.
        request: a request made of the example inputs.
        files: SHA-256 in hex of each member, by its name below the zip's root directory. It omits only the
            manifest and its signature.
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
    serving: Serving
    request: RequestRecord | None
    files: dict[str, str]


def member_name(package: str, resource: str) -> str:
    """Return the name of torch.package's member for a resource, below the zip's root folder.

    Args:
        package: dotted name of the package.
        resource: name of the resource in it.
    """
    return f"{package.replace('.', '/')}/{resource}"


def parse_manifest(text: str | bytes, archive: str) -> Manifest:
    """Parse a manifest and check that it is consistent; ``reader`` compares it with the archive.

    Args:
        text: the member's content.
        archive: the archive's file name, for messages.

    Raises:
        ManifestError: not JSON, an unsupported schema, or an invalid field.
    """
    try:
        value = strict_loads(text)
        if not isinstance(value, dict):
            raise BadJson("type", "is not a JSON object")
        if type(value.get("schema")) is not int or value["schema"] != SCHEMA:
            raise ManifestError(
                f"{archive}: its manifest has schema {shown(value.get('schema'))}, this interpool reads "
                f"schema {SCHEMA}; pack it again with this version",
                "schema",
            )
        manifest: Manifest = typed(value, Manifest)
        _check_values(manifest)
    except BadJson as error:
        raise ManifestError(f"{archive}: its manifest {error}. Pack it again", error.rule) from None
    return manifest


_DIGEST = re.compile(r"[0-9a-f]{64}")
# Part of a command line that users copy.
_CONTENT_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(; ?[\w-]+=[\w.-]+)*", re.ASCII)
_REQUIREMENT = re.compile(r"[\w.+!-]*", re.ASCII)  # of a distribution's name or version; likewise
_GLOBAL = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def _check_values(manifest: Manifest) -> None:
    """Check constraints that the types cannot express."""
    for name, digest in manifest["files"].items():
        _require(_DIGEST.fullmatch(digest), "files", f"gives {shown(name)} a digest that is not SHA-256")
    for name in manifest["modules"]:
        _require(
            is_module_name(name), "modules", f"names a module {shown(name)}, which is not a valid module name"
        )
    for extern in manifest["externs"]:
        _require(is_dotted_name(extern["module"]), "externs", f"names a module {shown(extern['module'])}")
        for text in (extern["distribution"], extern["version"]):
            _require(
                _REQUIREMENT.fullmatch(text), "externs", f"names a distribution or version {shown(text)}"
            )
    for what, version in manifest["made_with"].items():
        _require(str(version).isprintable(), "made_with", f"gives a version of {what} that cannot be shown")
    for name in manifest["globals"]:
        _require(_GLOBAL.fullmatch(name), "globals", f"lists {shown(name)}, which is not module:name")
    for module in manifest["modules"].values():
        for importer in module["imported_by"]:
            _require(importer["line"] >= 0, "modules", "names a line below 0")
    for where in filter(None, (manifest["entry"], manifest["self_test"], manifest["request"])):
        parts = where["package"].split(".")
        good = bool(where["resource"]) and all(part not in ("", ".", "..") for part in parts)
        good = good and not set("/\\\0") & set(where["package"] + where["resource"])
        _require(good, "resource", f"names {shown(where['resource'])} in package {shown(where['package'])}")
    request, test, inputs = manifest["request"], manifest["self_test"], manifest["inputs"]
    _require(inputs is None or _are_inputs(inputs), "inputs", "describes its example inputs in no known form")
    good = manifest["serving"]["parts"] is None or _are_parts(manifest["serving"]["parts"])
    _require(good, "serving", "divides a batch's answer in a way that cannot be")
    if request is not None:
        _require(
            _CONTENT_TYPE.fullmatch(request["content_type"])
            and (request["part"] or 0) >= 0
            and request.get("answer_bytes", 0) >= 0,
            "request",
            "describes a request that cannot be",
        )
    if test is not None:
        _require(0 <= test["seed"] < 1 << 63, "self_test", "gives its self-test a seed that cannot be")
        good = is_tolerance(test["rtol"]) and is_tolerance(test["atol"])
        _require(good, "self_test", "gives its self-test a tolerance that cannot be")


def _are_inputs(inputs: Any) -> bool:
    if not isinstance(inputs, dict):
        return False
    return isinstance(inputs.get("args"), list) and isinstance(inputs.get("kwargs"), dict)


def _are_parts(parts: Any, depth: int = 0) -> bool:
    if isinstance(parts, str):
        return parts in ("rows", "none")
    if depth > _DEEPEST_PARTS or not isinstance(parts, dict) or len(parts) != 1:
        return False
    ((kind, inner),) = parts.items()
    if kind == "list" and isinstance(inner, list):
        return all(_are_parts(each, depth + 1) for each in inner)
    return (
        kind == "dict" and isinstance(inner, dict) and all(_are_parts(e, depth + 1) for e in inner.values())
    )


def _require(good: object, rule: str, what: str) -> None:
    if not good:
        raise BadJson(rule, what)


def is_tolerance(value: float) -> bool:
    """Return whether a value is a valid tolerance: finite, not negative, not NaN."""
    return 0 <= value < TOLERANCES_BELOW


def is_dotted_name(name: str) -> bool:
    """Return whether an import statement can name this module: each part is an identifier."""
    return all(part.isidentifier() for part in name.split("."))


def is_module_name(name: str) -> bool:
    """Return whether a module of the model may have this name.

    Parts need not be identifiers: code that lists its folder may import ``nets.3d-unet`` by import_module.
    """
    parts = name.split(".")
    others = parts[0].lower() != MANIFEST_PACKAGE
    return others and all(part and f"_{part.replace('-', '_')}".isidentifier() for part in parts)
