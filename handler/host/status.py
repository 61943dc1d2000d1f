"""Describes live pools: for a host's own answer, and for ``interpool status``."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.handler.frontend import shim
from interpool.handler.frontend.held import owned
from interpool.handler.host import control
from interpool.handler.host.host_state import HostState, interpreters

if TYPE_CHECKING:
    from interpool.handler.direct.traffic import ModelTraffic
    from interpool.native.pool.states import InterpreterState, PoolState

_FIELDS = {
    "Rss": "rss",
    "Pss": "pss",
    "Private_Clean": "private_clean",
    "Private_Dirty": "private_dirty",
    "Pss_Anon": "anonymous",
    "Pss_File": "file",
    "Pss_Shmem": "shared_memory",
    "SwapPss": "swap",
}


def memory_of(pid: int) -> dict[str, int]:
    """A process's memory in bytes: ``rss``, ``pss``, ``private_clean``, ``private_dirty``, ``swap``.

    It also has the parts of ``pss`` by kind: ``anonymous``, ``file`` (code, archives and other mapped files)
    and ``shared_memory`` (memory that has no file in a file system). The numbers come from ``smaps_rollup``.

    Args:
        pid: the process's id.

    Returns:
        The numbers by name; {} if the process is gone or another user's.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in _FIELDS:
            found[_FIELDS[name]] = int(rest.split()[0]) * 1024
    return found


def ask_hosts(stacks: bool = False) -> tuple[list[HostState], list[str]]:
    """Ask every pool host of this user for its state.

    Args:
        stacks: whether each state also has the interpreters' Python stacks, as text under ``stacks``.

    Returns:
        The states of the hosts that answer. And for each host that listens and does not answer, a text on
        where it is and why.
    """
    return ask_hosts_below(Path(shim.runtime_base()), stacks)


def ask_hosts_below(base: Path, stacks: bool = False) -> tuple[list[HostState], list[str]]:
    """Do as ``ask_hosts`` does, for the hosts whose runtime directories are in one directory.

    Args:
        base: the directory; it need not exist.
        stacks: as for ``ask_hosts``.
    """
    pools: list[HostState] = []
    silent: list[str] = []
    # In a directory for all, another user's host states what that user likes.
    for directory in sorted(owned(base, "")):
        try:
            pool = json.loads(control.ask(directory))
            if stacks:
                pool["stacks"] = control.ask(directory, control.STACKS_REQUEST, timeout_s=10.0).decode()
            pools.append(pool)
        except TimeoutError:
            silent.append(f"{directory}: no answer in time; its log says what it does")
        except control.TurnedAway as reason:
            silent.append(f"{directory}: {reason}")
        except (OSError, ValueError):
            continue  # a directory without a host: it is new, or a crash has left it
    return pools, silent


def unanswered(silent: list[str]) -> str:
    """Text for people on hosts that do not answer: where they are, and why."""
    return "\n  ".join(["a pool host is running and does not answer, in", *silent])


def whose(pool: HostState) -> str:
    """Whose host a pool has, for people."""
    alone = pool["pid"] == pool["frontend_pid"]
    return "without TorchServe" if alone else f"of TorchServe {pool['frontend_pid']}"


def describe_pool(pool: HostState) -> str:
    """A pool's state for people."""
    memory, workers = pool["memory"], pool["workers"]
    who = f"host process {pool['pid']} {whose(pool)}"
    lines = [
        f"pool {pool['pool']!r}: {who}, up {pool['uptime_s']:.0f} s",
        f"  interpreters: {_interpreters(pool['interpreters'])}",
        *([f"  TROUBLE: {pool['trouble']}"] if pool.get("trouble") else []),
        f"  memory: {mib(memory.get('pss'))} PSS, {mib(memory.get('private_dirty'))} private and dirty",
    ]
    for model_dir in pool["models"]:
        mine = [worker for worker in workers if worker["model_dir"] == model_dir]
        states = Counter(str(worker["state"]) for worker in mine)
        shims = sum(memory_of(worker["pid"]).get("pss", 0) for worker in mine)
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        lines.append(f"  model {mine[0]['model']}: workers {counts}; their shims {mib(shims)} PSS together")
        lines.append(f"    in {model_dir}")
        if beside := sum(other["model_dir"] == model_dir for other in pool["beside"]):
            lines.append(f"    {beside} beside them answer at the direct address")
        if own := _own(pool, model_dir):
            lines.append(f"    {own}")
    if direct := pool.get("direct"):
        lines.append(f"  direct address {direct['address'] or 'of its program'}:")
        lines += [f"    {_traffic(each)}" for each in direct["models"]]
    if pool.get("stacks"):
        lines.append(textwrap.indent(pool["stacks"], "  "))
    return "\n".join(lines)


def _traffic(model: ModelTraffic) -> str:
    counts = ", ".join(f"{count} answered with {status}" for status, count in model["answers"].items())
    return f"{model['model']}: {counts or 'nothing answered'}, {model['waiting']} waiting"


def _own(pool: HostState, model_dir: str) -> str:
    own = [one for one in interpreters(pool) if one["owner"] == model_dir and one["state"] != "retired"]
    if not own:
        return ""
    served = pool["served"].get(model_dir)
    traces = served["traces"] if served else ""
    return f"{len(own)} of the interpreters are its own: {traces or 'it has asked for that'}"


def _interpreters(stats: PoolState | None) -> str:
    if stats is None:
        return "starting"
    each = stats["interpreters"]
    own = sum(one["owner"] is not None and one["state"] != "retired" for one in each)
    states = Counter(str(interpreter["state"]) for interpreter in each)
    leases = sum(int(interpreter["leases"]) for interpreter in each)
    also = [f"{own} serve one model each"] if own else []
    also += [f"{states[state]} {state}" for state in ("parked", "retired") if states[state]]
    also += missing(stats)
    counts = [
        f"{states['leased']} leased",
        *also,
        f"{stats['waiting']} calls waiting",
        f"{leases} leases so far",
    ]
    return f"{len(sharing(stats))} of at most {stats['max_size']} ({', '.join(counts)})"


def sharing(stats: PoolState) -> list[InterpreterState]:
    """The interpreters of a pool that any model may lease."""
    return [one for one in stats["interpreters"] if one["state"] in ("free", "leased") and not one["owner"]]


def missing(stats: PoolState) -> list[str]:
    """Text for people on interpreters that a pool should have and does not have: one text, or none."""
    lacks = stats["min_size"] - len(sharing(stats))
    if stats["growing"]:
        return [f"{lacks} more being started" if lacks > 1 else "one more being started"]
    if lacks > 0 and stats["failure"]:
        return [f"{lacks} did not start: {stats['failure'].splitlines()[0]}"]
    return []


def mib(size: int | None) -> str:
    """A number of bytes for people."""
    return "?" if size is None else f"{size / 2**20:.1f} MiB"
