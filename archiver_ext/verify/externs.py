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
import re
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from interpool.native.archive.format import Origin
from interpool.native.errors import ExternError

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
    missing: list[str] = []
    commands: list[str] = []
    warnings = _python_warnings(manifest)
    for extern in manifest["externs"]:
        said, wanted = _problem(extern)
        if wanted:
            missing.append(said)
            commands.append(wanted)
        elif said:
            warnings.append(said)
    gone = _gone_from_standard_library(manifest)
    if gone:
        missing.append(
            f"Python {platform.python_version()} has no module {', '.join(gone)}, which Python "
            f"{manifest['made_with']['python']} had where the archive was made"
        )
    if missing:
        mend = f". Install what it was made with: pip install {' '.join(commands)}" if commands else ""
        rule = "extern-missing" if not commands or "is not installed" in missing[0] else "extern-version"
        raise ExternError(f"{archive}: {'; '.join(missing)}{mend}", rule)
    return warnings


def _problem(extern: Extern) -> tuple[str, str]:
    """What is wrong with one extern, and, if that is an error, what pip is to install."""
    name, made_with = extern["distribution"], extern["version"]
    pinned = f"'{name}=={made_with.partition('+')[0]}'"
    try:
        here = metadata.version(name)
    except metadata.PackageNotFoundError:
        if _is_found(extern["module"]):
            return f"[extern-version] {extern['module']} is here, but of an unknown version", ""
        return f"{name}, which brings module {extern['module']}, is not installed", pinned
    if _line_of(name, here) == _line_of(name, made_with):
        return "", ""
    said = f"{name} is here in version {here}, and the archive was made with {made_with}"
    return (said, pinned) if name == "torch" else (f"[extern-version] {said}", "")


def _line_of(name: str, version: str) -> tuple[str, ...]:
    """The part of a version that must be the same: the major one, or major and minor."""
    release = re.match(r"v?(?:\d+!)?(\d+)(?:\.(\d+))?", version)
    if release is None:
        return (version,)
    major, minor = release.group(1), release.group(2) or "0"
    return (major, minor) if name == "torch" or int(major) == 0 else (major,)


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
