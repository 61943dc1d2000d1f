"""All hostile archives, and the table of them in README.md.

``PYTHONPATH=.:test_native/support python -m test_native.hostile.ledger``, in tests/, writes it.
"""

from __future__ import annotations

from pathlib import Path

from test_native.hostile.cases import Case
from test_native.hostile.manifest_cases import MANIFEST_CASES
from test_native.hostile.pickle_cases import PICKLES
from test_native.hostile.structure_cases import STRUCTURE

CASES: list[Case] = [*STRUCTURE, *MANIFEST_CASES, *PICKLES]
README = Path(__file__).with_name("README.md")
_START = "| archive |"


def table() -> str:
    rows = [
        f"| {case.name} | {case.tries} | {case.refused_by.__name__} | `{case.rule}` | {case.stage} |"
        for case in CASES
    ]
    return "\n".join([f"{_START} tries to | refused by | rule | stage |", "|---|---|---|---|---|", *rows, ""])


def written_table() -> str:
    text = README.read_text(encoding="utf-8")
    return text[text.index(_START) :]


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    README.write_text(text[: text.index(_START)] + table(), encoding="utf-8")
