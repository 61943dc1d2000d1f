"""JSON and YAML out of files that somebody else wrote, within bounds that hold before anything is built.

A few bytes of YAML can stand for gigabytes: an alias repeats what its anchor names, and that may hold more.
So the stream of events is counted first, with everything that an alias stands for. What is no regular file
is not read at all: a pipe would be waited for, a device has no end.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

LARGEST: Final = 1 << 18  # bytes: the largest of these files that are known have a tenth of that
DEEPEST: Final = 64
MOST_NODES: Final = 50_000  # with those that aliases stand for


class OutOfBounds(ValueError):
    """What is wrong with the file, as the rest of a sentence that starts with its name."""


def read_bounded(path: Path, largest: int = LARGEST) -> str:
    """The text of a regular file.

    Raises:
        OSError: it cannot be read.
        OutOfBounds: it is no regular file, or too large.
        ValueError: it is not UTF-8.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OutOfBounds("is no regular file")
        data = file.read(largest + 1)
    if len(data) > largest:
        raise OutOfBounds(f"has more than {largest:,} bytes")
    return data.decode("utf-8")


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """What a JSON file says; raises OSError or ValueError, as ``read_bounded``."""
    try:
        return json.loads(read_bounded(path, largest))
    except RecursionError:
        raise OutOfBounds("is nested too deep") from None


def read_yaml(path: Path) -> Any:
    """What a YAML file says, in plain types.

    Raises:
        OSError: it cannot be read.
        ValueError: it is out of bounds, or no YAML.
    """
    import yaml

    text = read_bounded(path)
    try:
        _count(yaml, text)
        return yaml.safe_load(text)
    except (OutOfBounds, MemoryError):
        raise
    except Exception as error:
        # Where a value is not what its tag says, PyYAML runs into whatever comes: KeyError, IndexError, ...
        said = str(error) if isinstance(error, yaml.YAMLError) else repr(error)
        raise OutOfBounds(f"is not YAML ({said})") from error


def _count(yaml: Any, text: str) -> None:
    """Raise OutOfBounds for what would become too deep, or too much."""
    sizes: dict[str, int] = {}  # of what has an anchor
    depths: dict[str, int] = {}
    # Of each collection that is open, and of the stream: its anchor, and the nodes and levels in it so far.
    stack: list[list[Any]] = [[None, 0, 0]]

    def add(anchor: str | None, nodes: int, levels: int) -> None:
        if anchor is not None:
            sizes[anchor], depths[anchor] = nodes, levels
        stack[-1][1] += nodes
        stack[-1][2] = max(stack[-1][2], levels)
        if len(stack) + levels > DEEPEST:
            raise OutOfBounds(f"is nested deeper than {DEEPEST} levels")
        if sum(entry[1] for entry in stack) > MOST_NODES:
            raise OutOfBounds(f"stands for more than {MOST_NODES:,} values, with its aliases")

    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise OutOfBounds(f"has an alias *{event.anchor} to what is not complete there")
            add(None, sizes[event.anchor], depths[event.anchor])
        elif isinstance(event, yaml.ScalarEvent):
            add(event.anchor, 1, 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            stack.append([event.anchor, 1, 0])
            if len(stack) > DEEPEST:
                raise OutOfBounds(f"is nested deeper than {DEEPEST} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, nodes, levels = stack.pop()
            add(anchor, nodes, levels + 1)
