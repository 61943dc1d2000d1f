"""``interpool why``."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.tree import Tree

from interpool.archiver_ext.commands.help_text import examples
from interpool.archiver_ext.commands.json_output import JSON, print_json
from interpool.archiver_ext.commands.progress import progress_if_slow
from interpool.archiver_ext.commands.showing import output_console, plain
from interpool.archiver_ext.inspect.import_chains import Why, why
from interpool.archiver_ext.mar.opening import open_archive
from interpool.archiver_ext.source_lines import source_line
from interpool.native.archive.format import ENTRY_PACKAGE, ENTRY_RESOURCE, SELF_TEST_RESOURCE

if TYPE_CHECKING:
    from rich.console import Console

    from interpool.archiver_ext.inspect.import_chains import Link

_MODULES_SHOWN = 8
_PICKLES = {
    f"{ENTRY_PACKAGE}/{ENTRY_RESOURCE}": "what was packed",
    f"{ENTRY_PACKAGE}/{SELF_TEST_RESOURCE}": "the self-test",
}


@click.command(
    "why",
    short_help="Say which imports brought a module into an archive",
    epilog=examples("interpool why m.ptpkg numpy", "interpool why m.mar mypkg.nets --all"),
)
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("module")
@click.option("--all", "show_all", is_flag=True, help="show every chain, not only the shortest ones")
@JSON
def why_command(archive: Path, module: str, show_all: bool, as_json: bool) -> None:
    """Say which imports brought MODULE, or a module below it, into an archive.

    ARCHIVE is m.ptpkg, or m.mar around it. Chains start at the packed object and end at MODULE. The shortest
    come first, with the line of each import. None of the archive's code runs.
    """
    with progress_if_slow(f"reading {archive}"), open_archive(archive) as opened:
        answer = why(opened, module, **({"most": None} if show_all else {}))
    if as_json:
        print_json(answer.as_dict())
    else:
        _show(output_console(), answer)


def _show(console: Console, answer: Why) -> None:
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, done in answer.modules.items():
        alike[done["action"], done["reason"]].append(name)
    for (action, reason), names in alike.items():
        shown = ", ".join(f"[bold]{plain(name)}[/]" for name in names[:_MODULES_SHOWN])
        more = len(names) - _MODULES_SHOWN
        shown += f" and {more} more" if more > 0 else ""
        console.print(f"{shown}: {action}, {plain(reason)}")
    statements = sorted(
        (link for link in answer.imported_at if link.kind == "import"),
        key=lambda link: (link.file, link.lines),
    )
    if statements:
        console.print(f"\nimported by {_count(len({link.importer for link in statements}), 'module')}:")
        for link in statements:
            console.print(f"  {_where(link)}")
    left_out = f", {answer.left_out} more with --all" if answer.left_out else ""
    if not answer.counted_all:
        left_out += "; there are more than can be counted"
    console.print(f"\n{_count(len(answer.chains), 'chain')}{left_out}:")
    for tree in _trees(answer):
        console.print(tree)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _trees(answer: Why) -> list[Tree]:
    """Return the chains as trees, with common beginnings merged."""
    roots: dict[str, Tree] = {}
    branches: dict[tuple[str, ...], Tree] = {}
    for chain in answer.chains:
        first = chain[0].importer if chain else answer.module
        if first not in roots:
            what = _PICKLES.get(first, "a pickle" if "/" in first else "named when it was packed")
            roots[first] = Tree(f"[bold]{plain(first)}[/] [dim]({what})[/]")
        branch = roots[first]
        path: tuple[str, ...] = (first,)
        for link in chain:
            path = (*path, link.module)
            if path not in branches:
                branches[path] = branch.add(f"[bold]{plain(link.module)}[/]  {_where(link)}")
            branch = branches[path]
    return list(roots.values())


def _where(link: Link) -> str:
    if link.kind == "import":
        others = f" [dim](and line {', '.join(map(str, link.lines[1:]))})[/]" if link.lines[1:] else ""
        return plain(source_line(link.file or link.importer, link.lines[0], link.text)) + others
    words = {
        "pickle": "one of its objects is in the pickle",
        "parent": f"the parent package of {link.importer}",
    }
    return f"[dim]{plain(words.get(link.kind, 'asked for without an import statement'))}[/]"
