"""Recognizes errors of users' code that docs/troubleshooting.md describes ("What an archive cannot hold").

It matches text, because the libraries that raise them may not be installed, and wrap each other's errors.
"""

from __future__ import annotations

import re

_BY_NAME = (
    '`sys.modules["mypkg.x"]`, and installed libraries that import by name, such as hydra\'s `_target_`'
)
_GROUP = "a process group (`torch.distributed`) that `forward` needs"
_NUMBA_CACHE = "`numba.njit(cache=True)`"
_METADATA = '`importlib.metadata.version("mypkg")` of a package in the archive'
ROWS = {
    _GROUP: re.compile(
        r"[Pp]rocess group has not been initialized|init_process_group|initializing torch\.distributed"
    ),
    _NUMBA_CACHE: re.compile(r"cannot cache function .* no locator available"),
    _METADATA: re.compile(r"PackageNotFoundError"),
    _BY_NAME: re.compile(
        r"[Ee]rror (locating|loading|in call to) (target )?'|InstantiationException|_target_"
        r"|is in the archive, but the code looked for it outside"
    ),
    '`open("labels.txt")`, without a folder': re.compile(r"FileNotFoundError|No such file or directory"),
}
"""Patterns of errors, by the first column of the table's rows."""
_ADVICE = {
    _GROUP: (
        "give pack the model without what needs a process group: a server sets none up, and all interpreters "
        "share one process"
    ),
    _NUMBA_CACHE: "leave out cache=True: each interpreter compiles the function when it is first called",
    _METADATA: "catch PackageNotFoundError, or write the version into the code: an archive holds no metadata",
}


def group_was_made(spec: str) -> str:
    """Return the advice for an archive whose model was built in a process group."""
    made = f"\n  {spec} makes a process group (torch.distributed), which no archive holds"
    return f"{made}\n  What to do: {_ADVICE[_GROUP]}{_see(_GROUP)}"


def is_advised(error: str) -> bool:
    """Return whether an error's row has its own advice."""
    return any(ROWS[row].search(error) for row in _ADVICE)


def row_for(error: str) -> str:
    """Return advice about an error, and a reference to its row; "" if there is none.

    Args:
        error: its type and its message.
    """
    found = next((row for row, said in ROWS.items() if said.search(error)), "")
    advice = f"\n  What to do: {_ADVICE[found]}" if found in _ADVICE else ""
    return f"{advice}{_see(found)}" if found else ""


def _see(row: str) -> str:
    return f'\n  See "{row}" in docs/troubleshooting.md, What an archive cannot hold'
