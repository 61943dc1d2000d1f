"""The supported versions of dependencies, from ``pyproject.toml``'s metadata; what distributions require."""

from __future__ import annotations

import contextlib
import shlex
import sysconfig
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from packaging.requirements import Requirement

_PYTHON = "Programming Language :: Python :: "


@cache
def requirement(name: str, extra: str = "") -> Requirement:
    """Return interpool's requirement of a distribution; any version if there is none.

    Args:
        name: of the distribution, as in ``pyproject.toml``.
        extra: the extra of interpool that requires it; "" for interpool itself.
    """
    from packaging.requirements import Requirement  # not needed at a host's start

    for each in map(Requirement, _stated()):
        # Only requirements of extras have a marker.
        of_extra = each.marker is not None and each.marker.evaluate({"extra": extra})
        if each.name == name and (of_extra if extra else each.marker is None):
            return each
    return Requirement(name)


def _stated() -> list[str]:
    try:
        return metadata.requires("interpool") or []
    except metadata.PackageNotFoundError:  # imported from a folder, not installed
        return []


def satisfies(name: str, version: str) -> bool:
    """Return whether interpool supports a version of a distribution.

    Args:
        name: of the distribution, as in ``pyproject.toml``.
        version: the version.
    """
    from packaging.version import InvalidVersion, Version

    try:
        return requirement(name).specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def pip_install(name: str) -> str:
    """Return the command that installs a supported version of a distribution."""
    wanted = requirement(name)
    return f"pip install {shlex.quote(f'{wanted.name}{wanted.specifier}')}"


def tested_torch() -> list[str]:
    """Return the tested minor versions of torch, such as ``2.13``: those that interpool requires."""
    stated = requirement("torch").specifier
    return [f"2.{minor}" for minor in range(100) if stated and stated.contains(f"2.{minor}.0")]


def tested_pythons() -> list[str]:
    """Return the tested versions of CPython, such as ``3.11``."""
    try:
        classifiers = metadata.metadata("interpool").get_all("Classifier") or []
    except metadata.PackageNotFoundError:
        return []
    found = [str(each).removeprefix(_PYTHON) for each in classifiers if str(each).startswith(_PYTHON)]
    return [each for each in found if each.replace(".", "").isdigit()]


def required_by(names: Iterable[str], without: Collection[str] = ()) -> set[str]:
    """Return canonical names of all direct and indirect requirements on this machine, without extras.

    Args:
        names: of distributions.
        without: canonical names of distributions that are left out, with what only they require.
    """
    from packaging.utils import canonicalize_name

    needed: set[str] = set()
    done = {(canonicalize_name(name), "") for name in without}
    waiting = [(canonicalize_name(name), "") for name in names]
    while waiting:
        asked = waiting.pop()
        if asked in done:
            continue
        done.add(asked)
        for required in _requirements_of(*asked):
            found = canonicalize_name(required.name)
            if found not in without:
                needed.add(found)
                waiting += [(found, extra) for extra in ("", *required.extras)]
    return needed


def _requirements_of(name: str, extra: str) -> list[Requirement]:
    """Return direct requirements of a distribution, with one of its extras or, for "", without."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        texts = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    stated = []
    for text in texts:
        # Old distributions may have invalid requirements, such as foo>=1.0.*, beside valid ones.
        with contextlib.suppress(InvalidRequirement):
            stated.append(Requirement(text))
    return [each for each in stated if each.marker is None or each.marker.evaluate({"extra": extra})]


def unfit_python() -> str:
    """Return why interpool cannot run on this build of CPython, in any version; "" if it can."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return (
            "a free-threaded build: its objects are laid out differently, and it has no GIL to be one of many"
        )
    return ""
