"""Finds the folder of native code that was compiled for the installed torch, such as ``lib/torch-2.13``.

The layouts of torch's classes change with each minor version. A wheel contains a folder for each supported
version, a checkout only the one for its torch.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from interpool.native.errors import ProvisioningError

UNTESTED = "INTERPOOL_UNTESTED"
"""Environment variable: ``1`` allows versions with which interpool was not tested."""

_PREFIX = "torch-"


def torch_part(libraries: Path, torch: str) -> Path:
    """Return the folder for a torch.

    Args:
        libraries: the parent of the folders.
        torch: its version, such as ``2.13.0+cpu``.

    Raises:
        ProvisioningError: there is no folder; or none for this minor version, and the environment variable
            does not allow the nearest one.
    """
    parts = {_minor(each.name.removeprefix(_PREFIX)): each for each in libraries.glob(f"{_PREFIX}*")}
    if not parts:
        raise ProvisioningError(
            f"interpool's own libraries are not in {libraries}", "Install interpool again."
        )
    minor = _minor(torch)
    if minor in parts:
        return parts[minor]
    nearest = max((each for each in parts if each < minor), default=min(parts))
    if os.environ.get(UNTESTED) == "1":
        return parts[nearest]
    built = {each: ".".join(map(str, each)) for each in sorted(parts)}
    raise ProvisioningError(
        f"this interpool was built for torch {' and '.join(built.values())}, and torch {torch} is installed",
        f"Install one of those; or set {UNTESTED}=1 to try what was built for {built[nearest]}. It ends the "
        "process, or answers wrong, if a class of torch's has another layout.",
    )


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version)[:2])
