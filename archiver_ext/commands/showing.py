"""Output that several commands share."""

from __future__ import annotations

import shlex
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from interpool.archiver_ext.commands.server_side import addresses
from interpool.archiver_ext.mar.opening import open_archive
from interpool.native.archive.format import Origin, member_name
from interpool.native.torchserve import MOST_REQUEST_BYTES, MOST_RESPONSE_BYTES, for_curl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interpool.native.archive.format import Extern, ModuleRecord

# Longer bodies are piped, not shown.
_MOST_SHOWN = 300
_ON_EVERY_SERVER = ""
# Modules that are always named.
_NAMED = ("torch", "numpy")
_FEW_FILES = 3
# Width for other programs, so that lines are not wrapped.
_WIDE = 1_000


def output_console() -> Console:
    """Return a console for standard output that wraps lines only for people."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def plain(text: str) -> str:
    """Escape an archive's text, so that it is shown and cannot control the terminal."""
    return escape("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))


def modules_table(modules: dict[str, ModuleRecord], verbose: bool = False) -> Table:
    """Return a table with one line per top-level module, action and reason; the title counts the modules.

    Args:
        modules: the manifest's records, by name.
        verbose: also list the modules that every server has; otherwise they are one line.
    """
    common = () if verbose else (Origin.STANDARD_LIBRARY, Origin.SERVER)
    grouped: Counter[tuple[str, str, str]] = Counter()
    tops: dict[str, set[str]] = defaultdict(set)
    for name, done in modules.items():
        top = name.partition(".")[0]
        if done["action"] == "extern" and done["origin"] in common:
            tops[_ON_EVERY_SERVER].add(top)
            top = _ON_EVERY_SERVER
        reason = "" if top == _ON_EVERY_SERVER else done["reason"]
        grouped[done["action"], top, reason] += 1
    total = Counter(done["action"] for done in modules.values())
    title = f"{total['intern']} interned, {total['extern']} extern, {total['mock']} mocked"
    table = Table("action", "module", "modules", "why", title=title, title_justify="left")
    order = ("intern", "mock", "extern")
    for (action, top, reason), count in sorted(
        grouped.items(), key=lambda item: (order.index(item[0][0]), item[0][1] == _ON_EVERY_SERVER, item[0])
    ):
        everywhere = top == _ON_EVERY_SERVER
        why = _everywhere(tops[top]) if everywhere else reason
        table.add_row(action, "-" if everywhere else plain(top), str(count), plain(why))
    return table


def _everywhere(tops: set[str]) -> str:
    named = [each for each in _NAMED if each in tops]
    others = f"{len(tops) - len(named)} more (the standard library, and what torch brings)"
    return f"every server has them: {', '.join([*named, others])}"


def data_lines(data: Mapping[str, str], verbose: bool = False) -> list[str]:
    """Return markup that lists data files with the lines that read them; many files in a folder are one line.

    Args:
        data: the text for each file, by name.
        verbose: list all files.
    """
    folders: dict[str, list[str]] = defaultdict(list)
    for file in data:
        folders[file.rpartition("/")[0]].append(file)
    lines = []
    for folder, files in folders.items():
        if verbose or len(files) <= _FEW_FILES:
            lines += [f"data: {plain(file)} ({plain(data[file])})" for file in files]
        else:
            lines.append(f"data: {len(files)} files in {plain(folder or '.')}/ ({plain(data[files[0]])})")
    return lines


def show_externs(console: Console, externs: list[Extern]) -> None:
    """Print the distributions that the server must have; nothing if there are none.

    Args:
        console: the output.
        externs: the manifest's records of them.
    """
    if not externs:
        return
    listed = ", ".join(sorted({_extern(each) for each in externs}))
    console.print(f"the server must have: {plain(listed)}")


def _extern(extern: Extern) -> str:
    if not extern["distribution"]:
        return f"module {extern['module']}, which no index is known to have"
    return f"{extern['distribution']} {extern['version']}"


class Example(NamedTuple):
    """The request that an archive holds.

    Attributes:
        archive: the file.
        content_type: of its body.
        body: its bytes.
        answer_bytes: the size of its answer.
        model_name: the name under which the archive is registered by default.
    """

    archive: Path
    content_type: str
    body: bytes
    answer_bytes: int
    model_name: str


def example_of(archive: Path) -> Example | None:
    """Return an archive's request; None if it contains none.

    Args:
        archive: a hermetic archive, or a .mar of any format that contains one. It is read once: a .mar's
            package is copied for that.

    Raises:
        ArchiveError: missing, damaged, or without a manifest.
    """
    with open_archive(archive) as opened:
        request = opened.manifest["request"]
        body = opened.read(member_name(request["package"], request["resource"])) if request else None
        if request is None or body is None:
            return None
        name = opened.wrapping.model.get("modelName") if opened.wrapping else None
        answer_bytes = request.get("answer_bytes", 0)
        return Example(archive, request["content_type"], body, answer_bytes, str(name or archive.stem))


def curl_line(example: Example | None) -> str:
    """Return the command line of a request to the server of this machine; "" if there is none."""
    if example is None:
        return ""
    option, inference = for_curl(addresses()[0])
    url = shlex.quote(f"{inference}/predictions/{quote(example.model_name, errors='replace')}")
    asked = f"curl -sS {option}-X POST {url} -H {shlex.quote(f'Content-Type: {example.content_type}')}"
    try:
        text = example.body.decode()
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable() and len(text) <= _MOST_SHOWN and not text.startswith("@"):
        return f"{asked} -d {shlex.quote(text)}"
    return f"interpool inspect {shlex.quote(str(example.archive))} --request | {asked} --data-binary @-"


def show_request(console: Console, example: Example | None) -> None:
    """Print the command line of a working request, and the server settings that it needs.

    Args:
        console: the output.
        example: the request; nothing is printed if there is none.
    """
    if example is None:
        return
    measured = (
        ("max_request_size", "this request", len(example.body), MOST_REQUEST_BYTES),
        ("max_response_size", "its answer", example.answer_bytes, MOST_RESPONSE_BYTES),
    )
    needed = "".join(
        f", and {setting} in config.properties is at least {size:,} for {what} (it is {most:,} unless set)"
        for setting, what, size, most in measured
        if size > most
    )
    console.print(f"a request that works, once it is registered as {plain(example.model_name)}{needed}:")
    console.print(f"  {curl_line(example)}", markup=False, soft_wrap=True)
