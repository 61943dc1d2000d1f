"""Lists the external globals of an archive's pickles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interpool.archiver_ext.pickle_reading import globals_of
from interpool.native.archive.pickle_names import is_external
from interpool.native.archive.reader import read_member, read_records

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


def pickle_globals(archive: Path, external: Collection[str]) -> list[str]:
    """Return the globals of all ``.pkl`` members that belong to external modules, for the manifest.

    Args:
        archive: a complete torch.package.
        external: the modules that it imports from the server, including their submodules.

    Returns:
        ``module:name``, sorted. A ``.pkl`` file that is not a pickle adds none.

    Raises:
        StructureError: the archive is damaged.
    """
    found: set[str] = set()
    with archive.open("rb") as file:
        for name, record in read_records(str(archive), file).items():
            if name.endswith(".pkl"):
                found |= globals_of(read_member(str(archive), file, record))
    return sorted(name for name in found if is_external(name.partition(":")[0], external))
