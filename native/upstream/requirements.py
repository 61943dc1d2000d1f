"""The versions of others that interpool is made for. They are stated once, in ``pyproject.toml``."""

from __future__ import annotations

import shlex
import sysconfig
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_PYTHON = "Programming Language :: Python :: "


@cache
def requirement(name: str, extra: str = "") -> Requirement:
    """What interpool requires of a distribution; any version of it if nothing is stated.

    Args:
        name: of the distribution, as ``pyproject.toml`` spells it.
        extra: the extra of interpool's that requires it; "" for interpool itself.
    """
    from packaging.requirements import Requirement  # a host that starts needs none of this

    for each in map(Requirement, _stated()):
        # Only what an extra requires has a marker.
        of_extra = each.marker is not None and each.marker.evaluate({"extra": extra})
        if each.name == name and (of_extra if extra else each.marker is None):
            return each
    return Requirement(name)


def _stated() -> list[str]:
    try:
        return metadata.requires("interpool") or []
    except metadata.PackageNotFoundError:  # imported from a folder, without being installed
        return []


def satisfies(name: str, version: str) -> bool:
    """Whether that version of a distribution is one that interpool requires."""
    from packaging.version import InvalidVersion, Version

    try:
        return requirement(name).specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def pip_install(name: str) -> str:
    """The command that installs a distribution in a version that interpool requires."""
    wanted = requirement(name)
    return f"pip install {shlex.quote(f'{wanted.name}{wanted.specifier}')}"


def tested_torch() -> list[str]:
    """The minor versions of torch that the tests have run with, such as ``2.13``: those that are required."""
    stated = requirement("torch").specifier
    return [f"2.{minor}" for minor in range(100) if stated and stated.contains(f"2.{minor}.0")]


def tested_pythons() -> list[str]:
    """The versions of CPython that the tests have run with, such as ``3.11``."""
    try:
        classifiers = metadata.metadata("interpool").get_all("Classifier") or []
    except metadata.PackageNotFoundError:
        return []
    found = [str(each).removeprefix(_PYTHON) for each in classifiers if str(each).startswith(_PYTHON)]
    return [each for each in found if each.replace(".", "").isdigit()]


def unfit_python() -> str:
    """Why interpool can never run on this build of CPython, whatever its version; "" if it can."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return (
            "a free-threaded build: its objects are laid out differently, and it has no GIL to be one of many"
        )
    return ""
