"""Where things lie in a hermetic archive, and what its manifest says.

A hermetic archive is a torch.package file with members of our own, in a package
whose name no module of the model's can have: the members can never hide, or be hidden
by, one of these.

Standard library only: packers, readers and servers all import this.
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
"""Its suffix says what it holds."""
SIGNATURE_RESOURCE: Final = "signature.json"

NAMESPACE_SOURCE: Final = "# A namespace package: a folder without an __init__.py.\n"
"""What stands in an archive for the ``__init__.py`` that such a folder has not."""

SCHEMA: Final = 5
MOST_MANIFEST_BYTES: Final = 64 << 20
TOLERANCES_BELOW: Final = 1e300

EntryKind = Literal["module", "callable", "handler"]
"""``module``: a torch.nn.Module. ``handler``: an object with ``handle``, or with
``preprocess``, ``inference`` and ``postprocess``. ``callable``: any other object
that can be called."""

Action = Literal["intern", "extern", "mock"]

Batches = Literal["stack", "batch", "each"]
"""How requests become calls. ``stack``: each is one sample, and several are stacked. ``batch``: each
brings a whole batch, and several are put one after the other. ``each``: one call for each."""

Parts = Any
"""Which parts of a batch's answer are one request's, as JSON. ``"rows"``: along the first dimension, or the
items of a list. ``"none"``: the answer is None. ``{"list": [Parts, ...]}`` and ``{"dict": {name: Parts}}``:
of each item by itself."""
_DEEPEST_PARTS: Final = 32


class Origin(StrEnum):
    """Who or what decided what is done with a module."""

    USER = "user"
    """An option, such as ``--extern GLOB``."""
    PLAN = "plan"
    """A line of the plan that was followed."""
    PROJECT = "project"
    """Nobody had to: it is the project's own."""
    STANDARD_LIBRARY = "standard_library"
    """Nobody had to: it was the standard library's where the archive was made."""
    SERVER = "server"
    """Nobody had to: every server has it."""
    RULES = "rules"
    """Packing's rules, or what a trial load showed to be wrong in them."""


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
    """A third-party top-level module that the archive takes from where it is served.

    Distribution and version are "" where they would not say what it is: it was installed from a
    directory or a repository, and an index may know the name as somebody else's.
    """

    module: str
    distribution: str
    version: str


class Importer(TypedDict):
    """Who asked for a module: a module and the line of its source, or a pickle and 0."""

    module: str
    line: int


class ModuleRecord(TypedDict):
    """What was done with one module, who decided, why, and who asked for it (nobody: the user named it)."""

    action: Action
    origin: Origin
    reason: str
    imported_by: list[Importer]


class SelfTest(TypedDict):
    """A pickle of example inputs and the answer that they gave when the archive was made.

    See ``interpool.archiver_ext.verify.self_test``. ``rtol`` and ``atol`` bound the difference of
    two floating-point numbers as in torch.testing.assert_close.
    """

    package: str
    resource: str
    seed: int
    rtol: float
    atol: float


class Serving(TypedDict):
    """How an entry that is no handler is served.

    ``batches`` is None if nobody has said, which is ``each``. ``parts`` says which parts of a batch's answer
    were proven to be one request's when the archive was made; without it, requests are served as ``each``.
    ``grad``: a module runs with gradients, and not in inference mode. ``train_mode``: a module stays in the
    mode in which it was packed, and is not put into evaluation mode.
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
    """A request over HTTP that was answered when the archive was made: its body, and what type that has.

    ``part`` says with which part of the self-test's answer: that of one sample, or of one row of a
    handler's batch. None: the whole answer. ``answer_bytes`` is how long that was as it is sent; packers
    before it do not say.
    """

    answer_bytes: int


SERVED_PLAINLY: Final[Serving] = {"batches": None, "parts": None, "grad": False, "train_mode": False}
"""What is served of which nobody has said anything: each request is one call."""


class Manifest(TypedDict):
    """The manifest's JSON.

    ``modules`` says of each module met what was done with it. ``externs`` names what must be
    installed where the archive is served, the standard library left out. ``globals`` lists,
    as ``module:name``, what its pickles take from external modules, and they get nothing
    else. ``data`` lists members that code finds through ``__file__``, and empty folders, whose
    names end in a slash. ``inputs`` describes the example inputs, ``request`` is one made of
    them. ``files`` maps each member's name, without the zip's root directory, to the SHA-256 of
    its content in hex; the manifest itself and its signature are the only members left out.
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
    """Where torch.package keeps a package's resource, below the zip's root folder."""
    return f"{package.replace('.', '/')}/{resource}"


def parse_manifest(text: str | bytes, archive: str) -> Manifest:
    """Read a manifest and check it by itself; ``reader`` holds it against its archive.

    Args:
        text: the member's content.
        archive: the archive's file name, for messages.

    Raises:
        ManifestError: not JSON, of a schema that is not read, or with a field that cannot be.
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
# Goes into a command line that people copy.
_CONTENT_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(; ?[\w-]+=[\w.-]+)*", re.ASCII)
_GLOBAL = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def _check_values(manifest: Manifest) -> None:
    """Check what the types cannot express."""
    for name, digest in manifest["files"].items():
        _require(_DIGEST.fullmatch(digest), "files", f"gives {shown(name)} a digest that is not SHA-256")
    for name in manifest["modules"]:
        _require(
            is_module_name(name), "modules", f"names a module {shown(name)}, which is not a valid module name"
        )
    for extern in manifest["externs"]:
        _require(is_dotted_name(extern["module"]), "externs", f"names a module {shown(extern['module'])}")
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
    request, test = manifest["request"], manifest["self_test"]
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
    """Whether answers may differ by it: no NaN, not below 0, and finite."""
    return 0 <= value < TOLERANCES_BELOW


def is_dotted_name(name: str) -> bool:
    """Whether an import statement can name a module so: each part is an identifier."""
    return all(part.isidentifier() for part in name.split("."))


def is_module_name(name: str) -> bool:
    """Whether a module of the model's may be called so.

    More than identifiers: code that lists its folder imports ``nets.3d-unet`` by import_module.
    """
    parts = name.split(".")
    others = parts[0].lower() != MANIFEST_PACKAGE
    return others and all(part and f"_{part.replace('-', '_')}".isidentifier() for part in parts)
