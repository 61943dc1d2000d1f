"""Exposes an archive's members through ``importlib.resources``, if they were not extracted."""

from __future__ import annotations

import io
from collections.abc import Iterator
from importlib.resources.abc import Traversable, TraversableResources
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from os import PathLike


class Archive(Protocol):
    """The attributes of an archive's importer that this module uses."""

    filename: str
    zip_reader: Any  # torch's, which has no stub

    def get_data(self, path: str) -> bytes:
        """Return the content of a member."""
        ...


class ArchivePath(Traversable):
    """A path in an archive, which need not exist.

    Args:
        importer: the archive's importer.
        member: relative path below the archive's root; "" for the root.
    """

    def __init__(self, importer: Archive, member: str) -> None:
        self._importer = importer
        self._member = member

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._member.rpartition("/")[2]

    def is_file(self) -> bool:
        """Return whether it is a member."""
        return bool(self._importer.zip_reader.has_record(self._member))

    def is_dir(self) -> bool:
        """Return whether there are members below it."""
        return next(self._below(), None) is not None

    def iterdir(self) -> Iterator[ArchivePath]:
        """Return the paths directly below it."""
        children = dict.fromkeys(rest.partition("/")[0] for rest in self._below())
        return (self.joinpath(child) for child in children)

    def joinpath(self, *descendants: str | PathLike[str]) -> ArchivePath:
        """Return the path of a descendant."""
        parts = [part for each in descendants for part in str(each).split("/") if part not in ("", ".")]
        return ArchivePath(self._importer, "/".join(filter(None, [self._member, *parts])))

    def __truediv__(self, child: str | PathLike[str]) -> ArchivePath:
        return self.joinpath(child)

    def read_bytes(self) -> bytes:
        """Return the member's content.

        Raises:
            FileNotFoundError: the archive contains no such member.
        """
        return self._importer.get_data(self._member)

    def read_text(self, *args: Any, **kwargs: Any) -> str:
        """Return the member as text.

        Args:
            *args: further positional arguments of io.TextIOWrapper, such as the encoding.
            **kwargs: its keyword arguments.

        Raises:
            FileNotFoundError: the archive contains no such member.
        """
        with self.open("r", *args, **kwargs) as file:
            return str(file.read())

    def open(self, mode: str = "r", *args: Any, **kwargs: Any) -> IO[Any]:
        """Open the member for reading.

        Args:
            mode: ``r`` or ``rt`` for text, ``rb`` for bytes.
            *args: further positional arguments of io.TextIOWrapper, such as the encoding; unused for bytes.
            **kwargs: its keyword arguments; unused for bytes.

        Raises:
            ValueError: ``mode`` is another one.
            FileNotFoundError: the archive contains no such member.
        """
        if mode not in ("r", "rb", "rt"):
            raise ValueError(f"a resource of an archive is opened for reading, not with {mode!r}")
        content = io.BytesIO(self.read_bytes())
        return content if mode == "rb" else io.TextIOWrapper(content, *args, **kwargs)

    def __repr__(self) -> str:
        return f"ArchivePath({self._importer.filename!r}, {self._member!r})"

    def _below(self) -> Iterator[str]:
        prefix = f"{self._member}/" if self._member else ""
        for record in self._importer.zip_reader.get_all_records():
            if record.startswith(prefix):
                yield record[len(prefix) :]


class ArchiveResources(TraversableResources):
    """The resources of one package of an archive.

    Args:
        root: the package's folder.
    """

    def __init__(self, root: Traversable) -> None:
        self._root = root

    def files(self) -> Traversable:
        """Return the package's folder."""
        return self._root
