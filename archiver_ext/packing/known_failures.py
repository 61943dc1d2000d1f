"""Errors of users' code that have a row in docs/troubleshooting.md, "What an archive cannot hold".

By what they say, as the libraries that raise them need not be installed, and wrap each other's.
"""

from __future__ import annotations

import re

_BY_NAME = (
    '`sys.modules["mypkg.x"]`, and installed libraries that import by name, such as hydra\'s `_target_`'
)
ROWS = {
    "a process group (`torch.distributed`) that `forward` needs": re.compile(
        r"[Pp]rocess group has not been initialized|init_process_group"
    ),
    _BY_NAME: re.compile(
        r"[Ee]rror (locating|loading|in call to) (target )?'|InstantiationException|_target_"
        r"|is in the archive, but the code looked for it outside"
    ),
    '`open("labels.txt")`, without a folder': re.compile(r"FileNotFoundError|No such file or directory"),
}
"""What is failing, as the first column of the table calls it, by what an error says."""


def row_for(error: str) -> str:
    """Words that lead to the row for an error; "" if there is none.

    Args:
        error: its type and its message.
    """
    found = next((row for row, said in ROWS.items() if said.search(error)), "")
    return f'\n  See "{found}" in docs/troubleshooting.md, What an archive cannot hold' if found else ""
