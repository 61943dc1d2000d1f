"""Reads untrusted JSON and YAML files, and checks their bounds before it builds any object.

A few bytes of YAML can expand to gigabytes, because each alias repeats its anchor's content. So the parser's
events are counted first, with each alias expanded. Only regular files are read: a pipe would block, and a
device has no end.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

LARGEST: Final = 1 << 18  # bytes; ten times the largest known file
DEEPEST: Final = 64
MOST_NODES: Final = 50_000  # with aliases expanded


class OutOfBounds(ValueError):
    """A file breaks a bound; the message continues a sentence that starts with the file's name."""


def read_bounded(path: Path, largest: int = LARGEST) -> str:
    """Read a regular file as UTF-8.

    Args:
        path: the file.
        largest: the most bytes that it may have.

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
    """Read a JSON file.

    Args:
        path: the file.
        largest: the most bytes that it may have.

    Raises:
        OSError: it cannot be read.
        ValueError: it is out of bounds, not UTF-8, or not JSON.
    """
    try:
        return json.loads(read_bounded(path, largest))
    except RecursionError:
        raise OutOfBounds("is nested too deep") from None


def read_yaml(path: Path) -> Any:
    """Read a YAML file as plain types.

    Raises:
        OSError: it cannot be read.
        ValueError: it is out of bounds, or not YAML.
    """
    import yaml

    text = read_bounded(path)
    try:
        _count(yaml, text)
        return yaml.safe_load(text)
    except (OutOfBounds, MemoryError):
        raise
    except Exception as error:
        # PyYAML raises any type, such as KeyError or IndexError, if a value does not match its tag.
        said = str(error) if isinstance(error, yaml.YAMLError) else repr(error)
        raise OutOfBounds(f"is not YAML ({said})") from error


def _count(yaml: Any, text: str) -> None:
    """Raise OutOfBounds if the YAML would be nested too deep or have too many values."""
    sizes: dict[str, int] = {}  # by anchor
    depths: dict[str, int] = {}
    # For the stream and each open collection: its anchor, and its nodes and levels so far.
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
