"""``interpool verify`` and ``interpool sign``."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from interpool.archiver_ext.commands.json_output import JSON, print_json, record_facts
from interpool.archiver_ext.commands.server_side import addresses
from interpool.archiver_ext.commands.showing import served_name, show_request
from interpool.archiver_ext.commands.tolerance import TOLERANCE
from interpool.archiver_ext.verify.signing import sign_archive
from interpool.archiver_ext.verify.verification import VerifyReport, report_of, verify_archive
from interpool.native.errors import ArchiveError

PASSWORD_VARIABLE = "INTERPOOL_KEY_PASSWORD"


@click.command("verify", short_help="Prove an archive: digests, signature, self-test")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PUB.pem",
    help="public key: the archive must be signed by it, or by another one given; may be repeated",
)
@click.option("--require-signature", is_flag=True, help="refuse to go without a --key")
@click.option("--no-self-test", is_flag=True, help="run none of its code")
@click.option("--rtol", type=TOLERANCE, help="of the answers; default: the manifest's")
@click.option("--atol", type=TOLERANCE, help="of the answers; default: the manifest's")
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

    In this order: its structure, its manifest, the digest of every file in it, its signature,
    what it needs of this machine, and last its self-test, in a fresh interpreter. Without keys
    the signature is not checked. Nothing in the archive runs before the self-test.
    """
    console = Console(stderr=True)
    try:
        report = verify_archive(
            archive,
            keys=keys,
            require_signature=require_signature,
            self_test=not no_self_test,
            rtol=rtol,
            atol=atol,
            watch=None if as_json else lambda name, _file: console.status(name),
        )
    except ArchiveError as error:
        refused = report_of(error)
        if refused is not None and as_json:
            record_facts(refused.as_dict())
        elif refused is not None:
            _show(Console(), refused)
        raise
    if as_json:
        print_json(report.as_dict())
    else:
        console = Console()
        _show(console, report)
        show_request(console, archive, served_name(archive), addresses()[0])


@click.command("sign", short_help="Sign an archive with a private key")
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
    help="the signed archive; default: in place",
)
@click.option("--ask-password", is_flag=True, help=f"ask for the key's password; else {PASSWORD_VARIABLE}")
@JSON
def sign_command(archive: Path, key: Path, output: Path | None, ask_password: bool, as_json: bool) -> None:
    """Sign an archive with a private key, or sign it again.

    Make a pair of keys with `openssl ecparam -name prime256v1 -genkey -noout -out key.pem`
    and `openssl ec -in key.pem -pubout -out pub.pem`.
    """
    password = os.environ.get(PASSWORD_VARIABLE)
    if ask_password:
        password = click.prompt("the key's password", hide_input=True, err=True)
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
        console.print(
            f"{mark} {stage.name:<9} {escape(said)} ({stage.seconds:.2f} s)", highlight=False, soft_wrap=True
        )
        for warning in stage.warnings:
            console.print(f"        [yellow]warning:[/] {escape(warning)}", highlight=False, soft_wrap=True)
    if report.refusal is None:
        console.print(f"[green]verified[/] {escape(report.archive)}", highlight=False, soft_wrap=True)
