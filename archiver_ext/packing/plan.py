"""A plan: the action for each package, and the reason.

``interpool plan`` proposes it as a TOML file, which users keep beside the model, edit, and give to ``pack``.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import tomlkit

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.serving_choices import Choices
from interpool.archiver_ext.workdir import workdir_for
from interpool.native.archive.format import Action, Origin

if TYPE_CHECKING:
    from tomlkit.items import Comment

SCHEMA = 1
ACTIONS: tuple[Action, ...] = get_args(Action)
_HEAD = (
    "What `interpool pack --plan` does with each package, and why. It is yours to change: move a",
    "line under another action, or add one; patterns are torch.package's. intern: goes into the",
    "archive. extern: the server must have it. mock: left out; what needs it after all will fail.",
)
_NOT_WORKING = "NOT WORKING: "
_SCHEMA_LINE, _SPEC_LINE = re.compile(r"^schema\s*=", re.MULTILINE), re.compile(r"^spec\s*=", re.MULTILINE)
_TOP_LEVEL = ("schema", "spec", "inputs", "serving", "data", *ACTIONS)


@dataclass(frozen=True)
class Proposal:
    """A plan's decision about one package.

    Attributes:
        glob: in torch.package's syntax, such as ``einops.**``.
        action: intern, extern or mock.
        reason: the reason.
        line: the user's line that needs it, ``path:line: text``, or "".
        origin: the source of the decision.
    """

    glob: str
    action: Action
    reason: str
    line: str = ""
    origin: Origin = Origin.PLAN


@dataclass(frozen=True)
class Plan:
    """Decisions for one model.

    Attributes:
        spec: the model's SPEC.
        inputs: source of its example inputs, as for ``--inputs``, or "".
        data: files to add beside the code, relative to the root, with the line that reads each.
        proposals: one for each package that needs a decision.
        serving: how the model is served.
    """

    spec: str
    inputs: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    proposals: tuple[Proposal, ...] = ()
    serving: Choices = field(default_factory=Choices)


def write_plan(plan: Plan, path: Path, not_working: str = "") -> None:
    """Write a plan as TOML, each decision with its reason and line.

    Args:
        plan: the plan.
        path: the file.
        not_working: why its archive does not work; written at the top.

    Raises:
        PackError: the file cannot be written.
    """
    document = tomlkit.document()
    for line in (*(f"{_NOT_WORKING}{said}" for said in not_working.splitlines()), *_HEAD):
        document.add(_comment(line))
    document.add("schema", tomlkit.item(SCHEMA))
    document.add("spec", tomlkit.item(plan.spec))
    if plan.inputs:
        document.add("inputs", tomlkit.item(plan.inputs))
    said = {word: given for word, given in asdict(plan.serving).items() if given is not None}
    if said:
        document.add(tomlkit.nl())
        document.add("serving", tomlkit.item(said))
    for name, lines in (("data", plan.data), *((action, None) for action in ACTIONS)):
        table = tomlkit.table()
        if lines is not None:
            for file, line in sorted(lines.items()):
                table.add(file, line)
        for each in plan.proposals if lines is None else ():
            if each.action == name:
                if each.line:
                    table.add(_comment(each.line))
                table.add(each.glob, each.reason)
        if lines is None or lines:
            document.add(tomlkit.nl())
            document.add(name, table)
    refuse_no_plan(path)
    # A path may contain bytes that are not text.
    text = tomlkit.dumps(document).encode(errors="replace")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(text)  # /dev/stdout
            return
        real = Path(os.path.realpath(path))  # keep a symbolic link
        with workdir_for(real) as workdir:
            (workdir / "plan").write_bytes(text)
            os.replace(workdir / "plan", real)
    except OSError as error:
        raise PackError(f"{path}: the plan cannot be written ({error.strerror})") from None


def refuse_no_plan(path: Path) -> None:
    """Refuse to write a plan to a place that cannot have one, or where another file is.

    Args:
        path: the plan's file.

    Raises:
        PackError: its directory is missing, or it exists and is no plan.
    """
    if not path.parent.is_dir():
        raise PackError(f"{path}: the plan cannot be written: there is no directory {path.parent}; make it")
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError as error:
        raise PackError(f"{path}: the plan cannot be written: it cannot be read ({error.strerror})") from None
    if text.strip() and not (_SCHEMA_LINE.search(text) and _SPEC_LINE.search(text)):
        raise PackError(f"{path}: the plan would replace it, and it is no plan; name another file by -o")


def _comment(text: str) -> Comment:
    """Create a comment and escape control characters, which errors and source lines may contain."""
    return tomlkit.comment("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))


def read_plan(path: Path) -> Plan:
    """Read a plan.

    Raises:
        PackError: it cannot be read, is not TOML, or has invalid content.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PackError(f"{path}: the plan cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise PackError(f"{path}: the plan is not TOML: {error}") from None
    unknown = sorted(found.keys() - set(_TOP_LEVEL))
    if unknown:
        raise PackError(f"{path}: unknown key {unknown[0]!r}; a plan has {', '.join(_TOP_LEVEL)}")
    if found.get("schema") != SCHEMA:
        raise PackError(
            f"{path}: schema is {found.get('schema')!r}, this interpool reads {SCHEMA}; make a new plan"
        )
    if not isinstance(found.get("spec"), str) or not isinstance(found.get("inputs", ""), str):
        raise PackError(f"{path}: spec, and inputs if it is there, must be texts")
    tables = {name: _table(found, name, path) for name in ("data", *ACTIONS)}
    _check_one_action_each({action: tables[action] for action in ACTIONS}, path)
    return Plan(
        spec=found["spec"],
        inputs=found.get("inputs", ""),
        data=tables["data"],
        proposals=tuple(
            Proposal(_glob(glob, action, path), action, reason)
            for action in ACTIONS
            for glob, reason in tables[action].items()
        ),
        serving=_serving(found.get("serving", {}), path),
    )


def _serving(given: Any, path: Path) -> Choices:
    if not isinstance(given, dict):
        raise PackError(f"{path}: [serving] must be a table")
    return Choices.of(given, f"{path}: [serving]")


def _table(found: dict[str, Any], name: str, path: Path) -> dict[str, str]:
    table = found.get(name, {})
    if not isinstance(table, dict):
        raise PackError(f"{path}: [{name}] must be a table")
    for key, reason in table.items():
        if not isinstance(reason, str):
            raise PackError(
                f"{path}: [{name}] {key} must be followed by its reason, a text; a glob with dots "
                'is put in quotation marks: "einops.**" = "why"'
            )
    return table


def _check_one_action_each(tables: Mapping[str, Mapping[str, str]], path: Path) -> None:
    under: dict[str, str] = {}
    for action, table in tables.items():
        for glob in table:
            if glob in under:
                raise PackError(
                    f"{path}: {glob!r} stands under [{under[glob]}] and [{action}]; leave it in one"
                )
            under[glob] = action


def _glob(glob: str, action: str, path: Path) -> str:
    try:
        check_glob(glob)
    except ValueError as error:
        raise PackError(f"{path}: [{action}] {glob!r}: {error}") from None
    return glob


def check_glob(glob: str) -> None:
    """Refuse a pattern that torch.package would not accept.

    Raises:
        ValueError: it would not accept it; the text says why.
    """
    if not all(glob.split(".")):
        raise ValueError("it is not a module's name, nor a pattern for one")
    if any("**" in part and part != "**" for part in glob.split(".")):
        raise ValueError("** must stand alone between dots, as in einops.**")
