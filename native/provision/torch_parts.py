"""The part of interpool's native code that is compiled for one torch: ``lib/torch-2.13`` and its kin.

Torch's classes have other layouts in each minor version, so there is a folder for each that interpool was
built for. A wheel has several; what is installed from a checkout has the one of its torch.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from interpool.native.errors import ProvisioningError

UNTESTED = "INTERPOOL_UNTESTED"
"""The environment variable that, as ``1``, has versions be used that interpool was not tested with."""

_PREFIX = "torch-"


def torch_part(libraries: Path, torch: str) -> Path:
    """The folder for a torch.

    Args:
        libraries: where the folders are.
        torch: its version, such as ``2.13.0+cpu``.

    Raises:
        ProvisioningError: there is none for it; or none for its minor version, and nobody has asked to try
            the nearest one.
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
        f"Install one of those; or set {UNTESTED}=1 to try what was built for {built[nearest]}: it ends the "
        "process, or answers wrong, where a class of torch's has another layout.",
    )


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version)[:2])
