"""``interpool status``."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from interpool.archiver_ext.commands.help_text import examples
from interpool.archiver_ext.commands.json_output import JSON, print_json, record_facts
from interpool.archiver_ext.commands.progress import progress_if_slow
from interpool.handler.commands.common import NOT_SERVED, OTHER, fail, require_runtime_directory
from interpool.handler.frontend import shim
from interpool.handler.torchserve import running_addresses, running_frontend
from interpool.native.torchserve import for_curl

if TYPE_CHECKING:
    from interpool.handler.host.host_state import HostState

CHECK_STATUS = """\b
Exit status of --check, for probes:
  0  ready: every worker is connected, and an interpreter can answer
  1  not ready, for the reasons that are printed, or a host does not answer
  5  no pool serves a model of that name
"""


@click.command(
    short_help="Show the live pools, or whether a model is ready",
    epilog=CHECK_STATUS + "\n" + examples("interpool status", "interpool status --check m"),
)
@JSON
@click.option("--stacks", is_flag=True, help="also show every interpreter's Python stacks")
@click.option("--watch", is_flag=True, help="show them again every second, until interrupted")
@click.option(
    "--times",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="until interrupted",
    help="with --watch: how many times to show them",
)
@click.option("--check", metavar="MODEL", help="say whether MODEL, MODEL/VERSION or '*' (all) is ready")
@click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=30.0,
    metavar="SECONDS",
    help="with --check: how long a call may wait for an interpreter",
)
def status(
    as_json: bool, stacks: bool, watch: bool, times: int | None, check: str | None, patience: float
) -> None:
    """Show this user's live pools: interpreters, models, workers, memory.

    --json prints `pools`, a list of the pool hosts' own answers. With --check it prints `ready` and `models`.
    """
    from interpool.handler.host.status import describe_pool, unanswered

    if stacks + watch + (check is not None) > 1 or (as_json and watch):
        raise click.UsageError("--stacks, --watch and --check are different questions; --watch gives no JSON")
    if times is not None and not watch:
        raise click.UsageError("--times goes with --watch")
    try:
        no_pool = f"no pool host is running (looked in {shim.runtime_base()})"
    except shim.Refused:
        require_runtime_directory()
        raise
    if check is not None:
        _check(check, *_pools(), patience, no_pool, as_json)
        return
    if watch:
        from interpool.handler.commands.watch import watch as show
        from interpool.handler.host.status import ask_hosts

        show(ask_hosts, no_pool, times=times)
        return
    pools, silent = _pools(stacks)
    facts = {"pools": pools}
    for pool in [] if as_json else pools:
        click.echo(describe_pool(pool))
    if silent:
        record_facts(facts)
        fail(unanswered(silent), OTHER)
    if as_json:
        print_json(facts)
    elif not pools:
        click.echo(no_pool)


def _pools(stacks: bool = False) -> tuple[list[HostState], list[str]]:
    """The live pools, and the hosts that do not answer.

    Fail if there are no pools and the runtime directory cannot be used, which may be the reason.
    """
    from interpool.handler.host.status import ask_hosts

    pools: list[HostState] = []
    silent: list[str] = []
    # PermissionError: another user's directory.
    with contextlib.suppress(PermissionError), progress_if_slow("asking the pools' hosts"):
        pools, silent = ask_hosts(stacks)
    if not pools:
        require_runtime_directory()
    return pools, silent


def _register_advice(name: str) -> str:
    """Advice about a model that no pool serves."""
    option, management = for_curl(running_addresses()[1])
    if running_frontend() is None:
        return "  What to do: start a server, `interpool serve --model-store DIR --models NAME.mar`"
    mar = "NAME.mar" if name == "*" else f"{name.partition('/')[0]}.mar"
    registering = f"models?url={mar}&initial_workers=1&synchronous=true"
    return (
        f"  What to do: `curl {option}{management}/models` lists all that TorchServe has. "
        f'Register a model: curl {option}-X POST "{management}/{registering}"'
    )


def _check(
    name: str,
    pools: list[HostState],
    silent: list[str],
    patience_s: float,
    no_pool: str,
    as_json: bool,
) -> None:
    """Print whether a model is ready in every pool that serves it, and exit with the matching status."""
    from interpool.handler.host.readiness import answer_of, readiness, why_absent
    from interpool.handler.host.status import unanswered

    found = readiness(pools, name, patience_s)
    if not found and not silent:
        fail(f"{why_absent(pools, name) if pools else no_pool}\n{_register_advice(name)}", NOT_SERVED)
    answer = answer_of(found, silent)
    if as_json and not silent:
        print_json(answer)
    for one in [] if as_json else found:
        said = "not ready: " + "; ".join(one.reasons) if one.reasons else "ready"
        click.echo(f"{one.model}/{one.version} in pool {one.pool!r}: {said}")
    if silent:
        record_facts(answer)
        fail(unanswered(silent), OTHER)
    if not answer["ready"]:
        sys.exit(OTHER)
