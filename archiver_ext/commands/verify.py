"""``interpool verify`` and ``interpool sign``."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interpool.archiver_ext.commands.help_text import REPEATABLE, examples
from interpool.archiver_ext.commands.json_output import JSON, print_json, record_facts
from interpool.archiver_ext.commands.progress import progress
from interpool.archiver_ext.commands.showing import curl_line, example_of, output_console, plain, show_request
from interpool.archiver_ext.commands.tolerance import TOLERANCE
from interpool.archiver_ext.verify.signing import sign_archive
from interpool.archiver_ext.verify.verification import VerifyReport, report_of, verify_archive
from interpool.native.errors import ArchiveError

if TYPE_CHECKING:
    from rich.console import Console

PASSWORD_VARIABLE = "INTERPOOL_KEY_PASSWORD"
_OF_THE_MANIFEST: dict[str, Any] = {
    "type": TOLERANCE,
    "metavar": "NUMBER",
    "show_default": "the manifest's",
}


@click.command(
    "verify",
    short_help="Prove an archive: digests, signature, self-test",
    epilog=examples("interpool verify m.ptpkg", "interpool verify m.ptpkg --key pub.pem"),
)
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PUB.pem",
    help=f"public key; one of those given must have signed the archive{REPEATABLE}",
)
@click.option("--require-signature", is_flag=True, help="fail if no --key is given")
@click.option("--no-self-test", is_flag=True, help="run none of the archive's code")
@click.option("--rtol", help="relative tolerance of the self-test", **_OF_THE_MANIFEST)
@click.option("--atol", help="absolute tolerance of the self-test", **_OF_THE_MANIFEST)
@JSON
def verify_command(
    archive: Path,
    keys: tuple[Path, ...],
    require_signature: bool,
    no_self_test: bool,
    rtol: float | None,
    atol: float | None,
    as_json: bool,
) -> None:
    """Prove an archive: m.ptpkg, or the m.mar (also .tar.gz, or a directory) around it.

    The checks come in this order: its structure, its manifest, the digest of every file in it, its signature,
    what it needs of this machine, and its self-test. The self-test runs in a fresh interpreter. Nothing in
    the archive runs before it. Without keys the signature is not checked.
    """
    try:
        with progress(f"verifying {archive}") as show_step:
            report = verify_archive(
                archive,
                keys=keys,
                require_signature=require_signature,
                self_test=not no_self_test,
                rtol=rtol,
                atol=atol,
                watch=lambda stage, _file: nullcontext(show_step(f"verifying {archive}: {stage}")),
            )
            example = example_of(archive)
    except ArchiveError as error:
        refused = report_of(error)
        if refused is not None and as_json:
            record_facts(refused.as_dict())
        elif refused is not None:
            _show(output_console(), refused)
        raise
    if as_json:
        print_json({**report.as_dict(), "curl": curl_line(example)})
    else:
        console = output_console()
        _show(console, report)
        show_request(console, example)


@click.command(
    "sign",
    short_help="Sign an archive with a private key",
    epilog=examples(
        "interpool sign m.ptpkg --key key.pem", "interpool sign m.ptpkg --key key.pem -o signed.ptpkg"
    ),
)
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "--key",
    required=True,
    type=click.Path(path_type=Path),
    metavar="PRIVATE.pem",
    help="private key of an elliptic curve",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    show_default="in place",
    help="the signed archive",
)
@click.option(
    "--ask-password",
    is_flag=True,
    help=f"ask for the key's password, which is {PASSWORD_VARIABLE} otherwise",
)
@JSON
def sign_command(archive: Path, key: Path, output: Path | None, ask_password: bool, as_json: bool) -> None:
    """Sign an archive with a private key, or sign it again.

    Make a pair of keys with these commands, and give pub.pem to those who verify:

    \b
      openssl ecparam -name prime256v1 -genkey -noout -out key.pem
      openssl ec -in key.pem -pubout -out pub.pem
    """  # noqa: D301 - click takes the character for a paragraph that it does not wrap
    password = os.environ.get(PASSWORD_VARIABLE)
    if ask_password:
        password = click.prompt("the key's password", hide_input=True, err=True)
    with progress(f"signing {archive}"):
        done = sign_archive(archive, key, output=output, password=password)
    if as_json:
        print_json({**asdict(done), "archive": str(done.archive)})
        return
    click.echo(f"{'signed again' if done.replaced else 'signed'} {done.archive} with key {done.fingerprint}")


# ---- for people -------------------------------------------------------------------------------


def _show(console: Console, report: VerifyReport) -> None:
    for stage in report.stages:
        refused = report.refusal is not None and stage is report.stages[-1]
        if refused:
            mark, said = "[red]refused[/]", ""
        elif stage.skipped:
            mark, said = "[yellow]skipped[/]", stage.skipped
        else:
            mark, said = "[green]ok[/]     ", stage.checked
        console.print(f"{mark} {stage.name:<9} {plain(said)} ({stage.seconds:.2f} s)", soft_wrap=True)
        for warning in stage.warnings:
            console.print(f"        [yellow]warning:[/] {plain(warning)}", soft_wrap=True)
    if report.refusal is None:
        console.print(f"[green]verified[/] {plain(report.archive)}", soft_wrap=True)
