"""``interpool inspect``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.tree import Tree

from interpool.archiver_ext.commands.help_text import examples
from interpool.archiver_ext.commands.json_output import JSON, print_json
from interpool.archiver_ext.commands.progress import progress_if_slow
from interpool.archiver_ext.commands.server_side import ServerSide
from interpool.archiver_ext.commands.showing import (
    Example,
    curl_line,
    example_of,
    modules_table,
    output_console,
    plain,
    show_externs,
    show_request,
)
from interpool.archiver_ext.inspect.inspection import Inspection, inspect_archive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from interpool.native.archive.format import Manifest

_STORAGES_SHOWN = 10
_TENSORS_SHOWN = 2
_ENTRIES_SHOWN = 12


@click.command(
    "inspect",
    short_help="Say what is in an archive, without running it",
    epilog=examples("interpool inspect m.ptpkg", "interpool inspect m.mar --json"),
)
@click.argument("archive", type=click.Path(path_type=Path))
@JSON
@click.option("--request", "body", is_flag=True, help="print only the body of the request that works")
def inspect_command(archive: Path, as_json: bool, body: bool) -> None:
    """Say what is in an archive: m.ptpkg, or the .mar around it in any format.

    None of its code runs. What it says of itself is shown unchecked: `interpool verify` checks it.
    """
    if body:
        with progress_if_slow(f"reading {archive}"):
            example = example_of(archive)
        if example is None:
            raise click.UsageError(f"{archive} holds no request: pack it with example inputs")
        sys.stdout.buffer.write(example.body)
        return
    server = click.get_current_context().find_object(ServerSide)
    with progress_if_slow(f"reading {archive}"):
        found = inspect_archive(archive, server.check_config if server else None)
        example = example_of(archive)
    if as_json:
        print_json({**found.as_dict(), "curl": curl_line(example)})
    else:
        _show(output_console(), found, example)


def _show(console: Console, found: Inspection, example: Example | None) -> None:
    manifest = found.manifest
    made, entry = manifest["made_with"], manifest["entry"]
    _say(
        console,
        f"{found.archive}: {entry['kind']} in {entry['package']}/{entry['resource']}, {_bytes(found.size)}, "
        f"made with Python {made['python']}, torch {made['torch']}, interpool {made['interpool']}",
    )
    _show_wrapping(console, found)
    _say(console, f"signature: {found.signature}")
    _say(console, f"inputs: {_signature(manifest['inputs'])}")
    test = manifest["self_test"]
    shown = f"{test['resource']}, rtol {test['rtol']:g}, atol {test['atol']:g}" if test else "none"
    _say(console, f"self-test: {shown}")
    _say(console, f"served: {_serving(manifest)}")
    show_request(console, example)
    for name in manifest["data"]:
        _say(console, f"data: {name}, {_bytes(found.sizes.get(name, 0))}")
    console.print(modules_table(manifest["modules"]))
    show_externs(console, manifest["externs"])
    _show_storages(console, found)
    console.print(_tree(found))
    for note in found.notes:
        console.print(f"[yellow]note:[/] {plain(note)}")


def _show_wrapping(console: Console, found: Inspection) -> None:
    if found.wrapping is None:
        return
    model = found.wrapping.model
    _say(
        console,
        f"in a TorchServe archive ({found.wrapping.archive_format}): model {model.get('modelName')}, "
        f"version {model.get('modelVersion')}, handler {model.get('handler')}, "
        f"serialized file {model.get('serializedFile')}",
    )
    beside = ", ".join(f"{name} ({_bytes(size)})" for name, size in found.wrapping.files.items())
    _say(console, f"beside the package: {beside or 'nothing'}")


def _say(console: Console, text: str) -> None:
    console.print(plain(text))


def _show_storages(console: Console, found: Inspection) -> None:
    total = sum(storage.bytes for storage in found.storages)
    count = len(found.storages)
    if not count:
        _say(console, "storages: none")
        return
    table = Table(
        "storage",
        "bytes",
        "dtype",
        "tensors",
        title=f"{count} storage{'' if count == 1 else 's'}, {_bytes(total)}",
        title_justify="left",
    )
    for storage in found.storages[:_STORAGES_SHOWN]:
        shown = [f"{each.name} {each.shape}" for each in storage.tensors[:_TENSORS_SHOWN]]
        if (more := len(storage.tensors) - _TENSORS_SHOWN) > 0:
            shown.append(f"and {more} more")
        table.add_row(
            plain(storage.member), f"{storage.bytes:,}", storage.dtype, "\n".join(map(plain, shown))
        )
    if (more := count - _STORAGES_SHOWN) > 0:
        rest = sum(storage.bytes for storage in found.storages[_STORAGES_SHOWN:])
        table.add_row(f"and {more} more", f"{rest:,}", "", "")
    console.print(table)


def _tree(found: Inspection) -> Tree:
    root = Tree("members")
    _add(root, "", found.sizes)
    return root


def _add(tree: Tree, prefix: str, sizes: dict[str, int]) -> None:
    """Add the members below a directory; directories of storages become one line."""
    directories: dict[str, dict[str, int]] = {}
    files: dict[str, int] = {}
    for name, size in sizes.items():
        first, slash, _ = name.removeprefix(prefix).partition("/")
        if slash:
            directories.setdefault(first, {})[name] = size
        else:
            files[first] = size
    for first, inside in sorted(directories.items()):
        branch = tree.add(f"[bold]{plain(first)}/[/]  [dim]{_summary(inside.values())}[/]")
        if first != ".data":
            _add(branch, f"{prefix}{first}/", inside)
    for index, (name, size) in enumerate(sorted(files.items())):
        if index == _ENTRIES_SHOWN and len(files) > _ENTRIES_SHOWN + 1:
            rest = sorted(files.items())[_ENTRIES_SHOWN:]
            tree.add(f"[dim]and {len(rest)} more files, {_bytes(sum(size for _, size in rest))}[/]")
            break
        tree.add(f"{plain(name)}  [dim]{_bytes(size)}[/]")


def _summary(sizes: Iterable[int]) -> str:
    every = list(sizes)
    return f"{len(every)} file{'' if len(every) == 1 else 's'}, {_bytes(sum(every))}"


def _bytes(size: int) -> str:
    if size < 1_000:
        return f"{size} B"
    return f"{size / 1e3:.1f} kB" if size < 1_000_000 else f"{size / 1e6:.2f} MB"


def _signature(inputs: Any) -> str:
    """Format example inputs in one line: ``(float32[1, 3], str), mask=bool[1]``."""
    if inputs is None:
        return "not recorded"
    given = [_value(each) for each in inputs["args"]]
    given += [f"{name}={_value(each)}" for name, each in inputs["kwargs"].items()]
    return f"({', '.join(given)})"


def _serving(manifest: Manifest) -> str:
    """Format the serving options in one line: ``batches: stack, with gradients``."""
    serving, kind = manifest["serving"], manifest["entry"]["kind"]
    if kind == "handler":
        return "by its own handle()"
    batches = serving["batches"] or "each"
    words = ["with gradients"] if serving["grad"] else []
    words += ["in the mode it was packed in"] if serving["train_mode"] else []
    return ", ".join([f"batches: {batches}", *words])


def _value(described: Any) -> str:
    if not isinstance(described, dict):
        return str(described)
    if isinstance(tensor := described.get("tensor"), dict):
        return f"{tensor.get('dtype')}{tensor.get('shape')}"
    for name in ("list", "tuple"):
        if isinstance(parts := described.get(name), list):
            ends = "[]" if name == "list" else "()"
            return f"{ends[0]}{', '.join(map(_value, parts))}{ends[1]}"
    if isinstance(named := described.get("dict"), dict):
        return "{" + ", ".join(f"{name}: {_value(each)}" for name, each in named.items()) + "}"
    return str(described.get("type", "?"))
