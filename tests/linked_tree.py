"""A copy of the cache, by links: other processes make and remove files in the cache meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from interpool.native import provision

# For `left_out`: what is of no interpreter, or of another than the first.
OTHER_SLOTS = ("000[02-9]", "00[1-9]?", "0[1-9]??")


def link_cache(root: Path, *left_out: str) -> Path:
    """A cache with this environment's set, at ``root``; gives the set's directory there."""
    made = Path(provision.notes_folder()).parent
    link_tree(made, root / made.name, *left_out)
    for directory in (root, root / made.name):
        directory.chmod(0o700)
    return root / made.name


def link_tree(source: Path, target: Path, *left_out: str) -> None:
    """What is whole there, and was not removed meanwhile, linked if that can be.

    Args:
        source: a folder.
        target: a new one.
        left_out: patterns of names, besides drafts and what is on its way out.
    """
    ignore = shutil.ignore_patterns(".*", *left_out)
    try:
        shutil.copytree(source, target, copy_function=_link, symlinks=True, ignore=ignore)
    except shutil.Error as error:
        if any(os.path.lexists(each) for each, *_ in error.args[0]):
            raise


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        pass  # it was removed
    except OSError:
        shutil.copy2(source, target)
