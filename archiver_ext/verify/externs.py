"""Checks whether this Python has usable versions of the modules that an archive needs from the server.

torch must have the same major and minor version, because pickles, operators and compiled extensions depend on
it. Any other distribution should have the same major version, or for 0.x the same minor one. A difference is
only a warning, because projects use version numbers differently and the self-test shows real problems.
Another minor version of Python is a warning, too, because the archive's sources are compiled here. A missing
module of the standard library is an error.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import InvalidVersion, Version

from interpool.native.archive.format import Origin
from interpool.native.errors import ExternError

if TYPE_CHECKING:
    from interpool.native.archive.format import Extern, Manifest


def check_externs(archive: str, manifest: Manifest) -> list[str]:
    """Compare the manifest with the installed distributions. Imports nothing.

    Args:
        archive: its name, for messages.
        manifest: of the archive.

    Returns:
        Warnings, each starting with its rule in brackets.

    Raises:
        ExternError: a module is missing, or torch is too different; names all of them, with the pip command.
    """
    found = [problem for extern in manifest["externs"] if (problem := _problem(extern)) is not None]
    errors = [problem for problem in found if problem.command or problem.rule == "extern-missing"]
    gone = _gone_from_standard_library(manifest)
    if gone:
        said = (
            f"Python {platform.python_version()} has no module {', '.join(gone)}, which Python "
            f"{manifest['made_with']['python']} had where the archive was made"
        )
        errors.append(_Problem("extern-missing", said))
    if errors:
        commands = " ".join(problem.command for problem in errors if problem.command)
        hint = f". Install what it was made with: pip install {commands}" if commands else ""
        said = "; ".join(problem.said for problem in errors)
        raise ExternError(f"{archive}: {said}{hint}", errors[0].rule)
    warnings = [f"[{problem.rule}] {problem.said}" for problem in found]
    return _python_warnings(manifest) + warnings


class _Problem(NamedTuple):
    """A problem with an extern.

    Attributes:
        rule: the broken rule.
        said: the problem, in words.
        command: the requirement for pip; "" for a warning.
    """

    rule: str
    said: str
    command: str = ""


def _problem(extern: Extern) -> _Problem | None:
    name, made_with = extern["distribution"], extern["version"]
    if not name:
        return None if _is_found(extern["module"]) else _Problem("extern-missing", _from_elsewhere(extern))
    pinned = f"'{name}=={made_with.partition('+')[0]}'"
    try:
        here = metadata.version(name)
    except metadata.PackageNotFoundError:
        if _is_found(extern["module"]):
            return _Problem("extern-version", f"{extern['module']} is here, but of an unknown version")
        return _Problem(
            "extern-missing", f"{name}, which brings module {extern['module']}, is not installed", pinned
        )
    if _line_of(name, here) == _line_of(name, made_with):
        return None
    said = f"{name} is here in version {here}, and the archive was made with {made_with}"
    return _Problem("extern-version", said, pinned if name == "torch" else "")


def _from_elsewhere(extern: Extern) -> str:
    return (
        f"module {extern['module']} is not installed; the machine that made the archive had it from a "
        "directory or a repository, and it is to be installed from there"
    )


def _line_of(name: str, version: str) -> tuple[int, ...] | str:
    """Return the part of a version that must be equal: the major version, or major and minor."""
    try:
        found = Version(version)
    except InvalidVersion:
        return version
    if name == "torch" or found.major == 0:
        return (found.major, found.minor)
    return (found.major,)


def _python_warnings(manifest: Manifest) -> list[str]:
    made_with = manifest["made_with"]["python"]
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if ".".join(made_with.split(".")[:2]) == here:
        return []
    said = (
        f"[python-version] made with Python {made_with}, and this is {platform.python_version()}: "
        "source that chooses by the version, or uses what this one lacks, fails when it is loaded"
    )
    return [said]


def _gone_from_standard_library(manifest: Manifest) -> list[str]:
    tops = {
        name.partition(".")[0]
        for name, done in manifest["modules"].items()
        if done["action"] == "extern" and done["origin"] is Origin.STANDARD_LIBRARY
    }
    return sorted(top for top in tops if top not in sys.stdlib_module_names and not _is_found(top))


def _is_found(module: str) -> bool:
    if not module.isidentifier():
        return False
    try:
        return module in sys.modules or importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
