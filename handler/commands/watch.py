"""Shows live pools on a terminal: what each interpreter and each model does, anew every second."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from interpool.handler.host.host_state import HostState, interpreters
from interpool.handler.host.model_status import ModelView, models_of, names_of, why_not_ready
from interpool.handler.host.status import describe_pool, mib, missing, sharing, unanswered, whose

_KINDS = ("anonymous", "file", "shared_memory", "swap")
_STYLES = {"free": "green", "leased": "yellow", "parked": "dim", "retired": "red"}

INTERVAL_S = 1.0

Pools = list[HostState]
Look = tuple[Pools, list[str]]


def watch(ask: Callable[[], Look], no_pools: str, times: int | None = None) -> None:
    """Show the pools until the user interrupts; as plain text if there is no terminal.

    Args:
        ask: asks every host; returns the hosts' states, and texts on the hosts that did not answer.
        no_pools: the text that is shown if there are none.
        times: the number of looks; None: without end.
    """
    console = Console()
    try:
        if not console.is_terminal:
            for pools, silent in _looks(ask, times):
                said = [*map(describe_pool, pools), *([unanswered(silent)] if silent else [])]
                print("\n".join(said) or no_pools, flush=True)
            return
        with Live(console=console, screen=times is None, auto_refresh=False) as live:
            for pools, silent in _looks(ask, times):
                live.update(render(pools, silent, no_pools), refresh=True)
    except KeyboardInterrupt:
        pass


def _looks(ask: Callable[[], Look], times: int | None) -> Iterator[Look]:
    for number in itertools.count() if times is None else range(times):
        if number:
            time.sleep(INTERVAL_S)
        yield ask()


def render(pools: Pools, silent: list[str], no_pools: str) -> RenderableType:
    """The pools as tables, and the hosts that do not answer.

    Args:
        pools: the states that the pools' hosts have sent.
        silent: texts on the hosts that did not answer.
        no_pools: the text that is shown if there are neither.
    """
    parts = [part for pool in pools for part in _pool(pool)]
    if silent:
        parts.append(Text(unanswered(silent), style="red"))
    return Group(*parts) if parts else Text(no_pools)


def _pool(pool: HostState) -> list[RenderableType]:
    stats, memory = pool["interpreters"], pool["memory"]
    head = Text.assemble(
        ("pool ", "bold"),
        (str(pool["pool"]), "bold cyan"),
        f"  host {pool['pid']} {whose(pool)}, up {duration(pool['uptime_s'])}",
    )
    kinds = ", ".join(f"{kind.replace('_', ' ')} {mib(memory.get(kind))}" for kind in _KINDS)
    trouble = [Text(f"TROUBLE  {pool['trouble']}", style="bold red")] if pool.get("trouble") else []
    parts: list[RenderableType] = [head, *trouble, Text(f"memory  {mib(memory.get('pss'))} PSS: {kinds}")]
    if stats is None:
        return [*parts, Text("interpreters: starting", style="yellow"), Text()]
    size = len(sharing(stats))
    waits = Text(f"calls waiting  {stats['waiting']}", style="red" if stats["waiting"] else "")
    parts.append(Text(", ".join([f"interpreters  {size} of at most {stats['max_size']}", *missing(stats)])))
    return [*parts, waits, _interpreters(pool), _models(pool), Text()]


def _interpreters(pool: HostState) -> Table:
    names = names_of(pool)
    table = _table("interpreter", "state", "model", "for", "leases", "has served", "serves only")
    for one in interpreters(pool):
        served = sorted({names[directory] for directory in one["affinities"] if directory in names})
        table.add_row(
            str(one["interpreter"]),
            Text(one["state"], style=_STYLES.get(one["state"], "")),
            escape(names.get(one["model"] or "", "")),
            "" if one["seconds"] is None else duration(one["seconds"]),
            str(one["leases"]),
            escape(", ".join(served)),
            escape(names.get(one["owner"] or "", "")),
        )
    return table


def _models(pool: HostState) -> Table:
    table = _table("model", "workers", "leases", "waiting", "mean wait", "loads", "loaded in", "ready")
    for view in models_of(pool):
        if not (view.registered or view.failed_lately):
            continue
        table.add_row(
            escape(f"{view.name}/{view.version}"),
            ", ".join(f"{count} {state}" for state, count in sorted(view.workers.items())),
            str(view.leases),
            _waiting(view),
            f"{1000 * view.waited_s / view.leases:.1f} ms" if view.leases else "",
            f"{view.loads}" + (f" ({view.failed_loads} failed)" if view.failed_loads else ""),
            " ".join(map(str, sorted(view.interpreters))),
            _ready(pool, view) if view.registered else Text(f"gone: {view.reason}", style="red"),
        )
    return table


def _waiting(view: ModelView) -> str:
    return f"{view.waiting}, longest {duration(view.longest_wait_s)}" if view.waiting else "0"


def _ready(pool: HostState, view: ModelView) -> Text:
    reasons = why_not_ready(pool, view)
    return Text("no: " + "; ".join(reasons), style="red") if reasons else Text("yes", style="green")


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        right = column in ("interpreter", "for", "leases", "mean wait")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table


def duration(seconds: float) -> str:
    """Seconds for people: ``0.25 s``, ``12 s``, ``3:05 min``, ``2:03 h``."""
    whole = int(seconds)
    if seconds < 10:
        return f"{seconds:.2f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"
