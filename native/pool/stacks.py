"""Formats the interpreters' Python stacks for people."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interpool.native.pool.states import InterpreterStacks


def describe_stacks(interpreters: list[InterpreterStacks], patience: float) -> str:
    """Format the result of ``Pool.stacks`` as text: one paragraph per interpreter.

    Args:
        interpreters: the result.
        patience: seconds that were allowed, for the text.
    """
    return "\n\n".join("\n".join(_paragraph(one, patience)) for one in interpreters)


def host_thread(number: int) -> str:
    """Describe a thread of this process, given its kernel number, by its name in Python or the kernel."""
    for thread in threading.enumerate():
        if thread.native_id == number:
            return f"thread {number} {thread.name!r}"
    try:
        name = Path(f"/proc/self/task/{number}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return f"thread {number}, which has ended"
    return f"thread {number} {name!r}"


def _paragraph(one: InterpreterStacks, patience: float) -> list[str]:
    title = f"interpreter {one['interpreter']}: {one['state']}"
    if one["state"] == "leased":
        title += f" for {one['seconds']:.1f} s by {host_thread(one['holder'])}"
    if one["state"] == "retired":
        return [f"{title}; a call into it did not come back"]
    if not one["answered"]:
        who = host_thread(one["inside"]) if one["inside"] else "a thread of its own"
        title += f"; busy in native code that does not release the GIL, in {who}"
        return [f"{title}: no answer within {patience:g} s"]
    lines = [title]
    for thread in one["threads"]:
        if not thread["frames"] and thread["thread"] != one["inside"]:
            continue  # the thread ran in this interpreter earlier
        name = f"thread {thread['thread']} {thread['name']!r}" if thread["name"] else ""
        lines.append(f"  {name or host_thread(thread['thread'])}")
        lines += [f"    {frame}" for frame in thread["frames"]] or [
            "    in native code, called by no Python code"
        ]
    return lines
