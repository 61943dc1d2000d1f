"""Finds the chains of imports that brought a module into an archive.

It reads the manifest and the sources in the archive; nothing runs.
"""

from __future__ import annotations

import difflib
import heapq
from collections import defaultdict, deque
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from interpool.archiver_ext.source_lines import lines_of
from interpool.native.errors import InterpoolError

if TYPE_CHECKING:
    from interpool.archiver_ext.mar.opening import OpenedArchive
    from interpool.native.archive.format import Manifest, ModuleRecord

SHOWN = 10
# Enumerating all simple paths of a graph can take exponential time.
MOST_CHAINS = 1_000
_MOST_STEPS = 100_000

LinkKind = Literal["import", "pickle", "parent", "other"]


@dataclass(frozen=True)
class Link:
    """One step of a chain.

    Attributes:
        importer: a module, or the name of a pickle in the archive.
        module: the imported module.
        kind: ``import``: a statement. ``pickle``: the pickle contains an object of the module. ``parent``:
            the module is the importer's parent package, which Python imports first. ``other``: none of these.
        file: the importer's source, by its name in the archive, or "".
        lines: of the statements, from 1; empty for other kinds.
        text: the first of these lines, stripped, or "".
    """

    importer: str
    module: str
    kind: LinkKind
    file: str
    lines: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Why:
    """The result of ``why``.

    Attributes:
        archive: as given.
        module: as given.
        modules: the records of the module and of each recorded module below it.
        imported_at: every link from outside to one of these modules.
        chains: from a pickle, or from a module that the user named, to the first of these modules; shortest
            first. A chain without links is a module that the user named.
        left_out: the number of further chains.
        counted_all: False if that number is a lower bound.
    """

    archive: str
    module: str
    modules: dict[str, ModuleRecord]
    imported_at: list[Link]
    chains: list[tuple[Link, ...]]
    left_out: int
    counted_all: bool

    def as_dict(self) -> dict[str, Any]:
        """Return a form for JSON."""
        return asdict(self)


def why(opened: OpenedArchive, module: str, *, most: int | None = SHOWN) -> Why:
    """Find every chain of imports that brought ``module``, or a module below it, into an archive.

    Args:
        opened: the archive.
        module: dotted name.
        most: return so many chains and count the rest; None for all, up to MOST_CHAINS.

    Raises:
        InterpoolError: the archive contains no such module.
    """
    recorded = opened.manifest["modules"]
    below = f"{module}."
    wanted = {name for name in recorded if name == module or name.startswith(below)}
    if not wanted:
        raise InterpoolError(_unknown(opened, module))
    graph = _Graph(opened.manifest)
    links = _Links(opened, graph)
    found, counted_all = graph.chains(wanted)
    shown = found if most is None else found[:most]
    return Why(
        archive=str(opened.path),
        module=module,
        modules={name: recorded[name] for name in sorted(wanted)},
        imported_at=[
            links.link(user, name)
            for name in sorted(wanted)
            for user in sorted(graph.users(name))
            if user not in wanted
        ],
        chains=[tuple(links.link(user, name) for user, name in pairwise(chain)) for chain in shown],
        left_out=len(found) - len(shown),
        counted_all=counted_all,
    )


def _unknown(opened: OpenedArchive, module: str) -> str:
    modules = opened.manifest["modules"]
    said = f"{module} is not in {opened.path}"
    # the nearest recorded parent package
    parent = module.rpartition(".")[0]
    while parent and parent not in modules:
        parent = parent.rpartition(".")[0]
    close = difflib.get_close_matches(module, modules, n=3)
    if parent and modules[parent]["action"] != "intern":
        doing = "extern" if modules[parent]["action"] == "extern" else "mocked"
        return f"{said}: {parent} is {doing}, and what it imports itself is not recorded"
    if close:
        return f"{said}; did you mean {' or '.join(close)}?"
    externs = sorted({name.partition(".")[0] for name, done in modules.items() if done["action"] == "extern"})
    if not externs:
        return f"{said}; `interpool inspect` lists its modules"
    return (
        f"{said}; `interpool inspect` lists its modules. What extern modules import themselves "
        f"is not recorded ({', '.join(externs)})"
    )


class _Graph:
    """The graph of importers and imported modules."""

    def __init__(self, manifest: Manifest) -> None:
        self._lines: dict[str, dict[str, list[int]]] = {}
        for name, done in manifest["modules"].items():
            users: dict[str, list[int]] = defaultdict(list)
            for each in done["imported_by"]:
                users[each["module"]].append(each["line"])
            self._lines[name] = dict(users)

    def users(self, module: str) -> dict[str, list[int]]:
        """Return the importers of a module, with their lines; none for a pickle."""
        return self._lines.get(module, {})

    def chains(self, wanted: set[str]) -> tuple[list[tuple[str, ...]], bool]:
        """Find simple paths from nodes without importers to the first wanted module.

        Returns:
            The paths, shortest first, then by name; and whether they are complete.
        """
        left = self._links_left()
        waiting: list[tuple[int, tuple[str, ...]]] = [
            (left[name], (name,)) for name in wanted if name in left
        ]
        heapq.heapify(waiting)
        found: list[tuple[str, ...]] = []
        for _ in range(_MOST_STEPS):
            if not waiting or len(found) == MOST_CHAINS:
                break
            _, path = heapq.heappop(waiting)
            users = self.users(path[0])
            if not users:
                found.append(path)
            for user in users:
                if user in left and user not in wanted and user not in path:
                    heapq.heappush(waiting, (len(path) + left[user], (user, *path)))
        return found, not waiting

    def _links_left(self) -> dict[str, int]:
        """Return the length of the shortest path to each node from one without importers."""
        asks: dict[str, list[str]] = defaultdict(list)
        nodes = set(self._lines)
        for name, users in self._lines.items():
            for user in users:
                asks[user].append(name)
                nodes.add(user)
        left = {name: 0 for name in nodes if not self.users(name)}
        waiting = deque(left)
        while waiting:
            user = waiting.popleft()
            for name in asks[user]:
                if name not in left:
                    left[name] = left[user] + 1
                    waiting.append(name)
        return left


class _Links:
    """Creates links with the text of their lines; reads each source once."""

    def __init__(self, opened: OpenedArchive, graph: _Graph) -> None:
        self._opened = opened
        self._graph = graph
        self._sources: dict[str, tuple[str, list[str]]] = {}

    def link(self, user: str, module: str) -> Link:
        lines = tuple(sorted(line for line in self._graph.users(module)[user] if line))
        file, source = self._source(user)
        text = source[lines[0] - 1].strip() if lines and lines[0] <= len(source) else ""
        return Link(user, module, self._kind(user, module, lines), file, lines, text)

    def _kind(self, user: str, module: str, lines: tuple[int, ...]) -> LinkKind:
        if lines:
            return "import"
        if user.startswith(f"{module}."):
            return "parent"
        return "pickle" if user in self._opened.records else "other"

    def _source(self, user: str) -> tuple[str, list[str]]:
        if user not in self._sources:
            path = user.replace(".", "/")
            names = [name for name in (f"{path}/__init__.py", f"{path}.py") if name in self._opened.records]
            content = self._opened.read(names[0]) if names else None
            text = (content or b"").decode("utf-8", "replace")
            self._sources[user] = (names[0] if names else "", lines_of(text))
        return self._sources[user]
