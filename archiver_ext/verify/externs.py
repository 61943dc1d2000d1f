"""Whether this Python has what an archive takes from where it is served, in usable versions.

Usable is: torch of the same major and minor version, as its pickles, its operators and what
compiled extensions expect of it belong together. Of any other distribution the same major
version, or for 0.x the same minor: another one is a warning, as version numbers mean
different things to different projects, and what really breaks shows in the self-test. The
Python's minor version is a warning, too: the archive holds source, which is compiled here;
modules of the standard library that this Python no longer has are an error.
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
from interpool.native.known_libraries import known_library

if TYPE_CHECKING:
    from interpool.native.archive.format import Extern, Manifest


def check_externs(archive: str, manifest: Manifest) -> list[str]:
    """Compare what the manifest says with what is installed here. Imports nothing.

    Args:
        archive: its name, for messages.
        manifest: the archive's.

    Returns:
        Warnings, each starting with its rule in brackets.

    Raises:
        ExternError: something is missing, or torch is too different; names them all, with the
            pip command.
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
    return _python_warnings(manifest) + warnings + _unsafe_warnings(manifest)


class _Problem(NamedTuple):
    """What is wrong with an extern.

    Attributes:
        rule: that it breaks.
        said: what is wrong, in words.
        command: what pip is to install, where it is more than a warning.
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
        f"module {extern['module']} is not installed; it was installed from a directory or a repository "
        "where the archive was made, and is to be installed from there"
    )


def _line_of(name: str, version: str) -> tuple[int, ...] | str:
    """The part of a version that must be the same: the major one, or major and minor."""
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


def _unsafe_warnings(manifest: Manifest) -> list[str]:
    """What is known not to compute in private interpreters."""
    names = dict.fromkeys(extern["distribution"] for extern in manifest["externs"])
    known = [found for name in names if (found := known_library(name)) is not None and not found.computes]
    return [f"[extern-unsafe] {found.said}" for found in known]


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
