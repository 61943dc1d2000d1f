"""What several commands print in the same way."""

from __future__ import annotations

import shlex
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from interpool.archiver_ext.mar.opening import open_archive
from interpool.native.archive.format import Origin, member_name
from interpool.native.torchserve import MOST_REQUEST_BYTES, MOST_RESPONSE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interpool.native.archive.format import Extern, ModuleRecord

# From here on a body is piped, not shown.
_MOST_SHOWN = 300
_ON_EVERY_SERVER = ""
# Those of them that a reader looks for.
_NAMED = ("torch", "numpy")
_FEW_FILES = 3
# Lines that another program reads are not wrapped.
_WIDE = 1_000


def output() -> Console:
    """Standard output, wrapped for people only."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def plain(text: str) -> str:
    """Text of an archive's, as markup that shows it and does nothing else to the terminal."""
    return escape("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))


def modules_table(modules: dict[str, ModuleRecord], verbose: bool = False) -> Table:
    """One line for each top-level module, action and reason; the title counts the modules.

    What every server has is one line, unless ``verbose``.
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
    """Markup that lists data files, with the line that reads each; many of one folder are one line.

    Args:
        data: what is shown behind each, by name.
        verbose: list them all.
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
    """The distributions that the server must have."""
    if not externs:
        return
    listed = ", ".join(sorted({_extern(each) for each in externs}))
    console.print(f"the server must have: {plain(listed)}", highlight=False)


def _extern(extern: Extern) -> str:
    if not extern["distribution"]:
        return f"module {extern['module']}, which no index is known to have"
    return f"{extern['distribution']} {extern['version']}"


def show_request(console: Console, archive: Path, model_name: str, address: str) -> None:
    """The command line of a request that works, if the archive holds one."""
    line = curl_line(archive, model_name, address)
    if line:
        needed = "".join(f", and {each}" for each in _settings_needed(archive))
        console.print(
            f"a request that works, once it is registered as {plain(model_name)}{needed}:", highlight=False
        )
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _settings_needed(archive: Path) -> list[str]:
    """What a server must be told before it takes an archive's request, and sends the answer."""
    with open_archive(archive) as opened:
        record = opened.manifest["request"]
    answer_bytes = 0 if record is None else record.get("answer_bytes", 0)
    measured = (
        ("max_request_size", "this request", len(request_of(archive)[1]), MOST_REQUEST_BYTES),
        ("max_response_size", "its answer", answer_bytes, MOST_RESPONSE_BYTES),
    )
    return [
        f"{setting} in config.properties is at least {size:,} for {what} (it is {most:,} unless set)"
        for setting, what, size, most in measured
        if size > most
    ]


def curl_line(archive: Path, model_name: str, address: str) -> str:
    """The command line of an archive's request, "" if it holds none.

    Args:
        archive: a hermetic archive, or a .mar of any format that holds one.
        model_name: as it is registered.
        address: the server's.

    Raises:
        ArchiveError: missing, damaged, or without a manifest.
    """
    content_type, body = request_of(archive)
    if not content_type:
        return ""
    url = shlex.quote(f"{address}/predictions/{quote(model_name)}")
    asked = f"curl -sS -X POST {url} -H {shlex.quote(f'Content-Type: {content_type}')}"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable() and len(text) <= _MOST_SHOWN and not text.startswith("@"):
        return f"{asked} -d {shlex.quote(text)}"
    return f"interpool inspect {shlex.quote(str(archive))} --request | {asked} --data-binary @-"


def request_of(archive: Path) -> tuple[str, bytes]:
    """The content type and the body of an archive's request; "" if it holds none.

    Raises:
        ArchiveError: missing, damaged, or without a manifest.
    """
    with open_archive(archive) as opened:
        request = opened.manifest["request"]
        body = opened.read(member_name(request["package"], request["resource"])) if request else None
        return ("", b"") if request is None or body is None else (request["content_type"], body)


def served_name(archive: Path) -> str:
    """The name that an archive is registered by, if nobody gives it another."""
    with open_archive(archive) as opened:
        name = opened.wrapping.model.get("modelName") if opened.wrapping else None
    return str(name or archive.name.partition(".")[0])
