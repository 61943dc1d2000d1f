"""Writes the tables of docs/settings.md, from the descriptions of settings in the code.

.venv/bin/python scripts/support/settings_tables.py    a test compares the page with the code
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marked import Tables, markdown_table, with_tables

from interpool.handler.config import HostSettings, ModelSettings
from interpool.handler.described import Setting, described, shown
from interpool.handler.run.options import Options
from interpool.handler.variables import OtherVariables

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
BY = "scripts/support/settings_tables.py"
TYPES = {"array": "paths", "integer": "whole number", "number": "number", "string": "text"}


def table(settings: type) -> str:
    """A row for each setting, with its option of ``interpool run`` if there are any."""
    found = described(settings)
    head = "setting | type and unit | default | what it does"
    rows = [[f"`{each.name}`", _type(each), each.default, each.description] for each in found]
    if any(each.option for each in found):
        head = head.replace("setting", "setting | option of `interpool run`")
        for row, each in zip(rows, found, strict=True):
            row.insert(1, f"`{each.option}`")
    return markdown_table(head, rows)


def _type(setting: Setting) -> str:
    unit = "".join(f", in {kind['unit']}" for kind in setting.kinds if "unit" in kind)
    return " or ".join(_values(kind, setting.name) for kind in setting.kinds) + unit


def _values(kind: dict[str, Any], name: str) -> str:
    if kind["type"] == "boolean":
        return ", ".join(f"`{shown(value, name)}`" for value in (False, True))
    if "enum" in kind:
        return ", ".join(f"`{value}`" for value in kind["enum"])
    limits = {"from": "minimum", "above": "exclusiveMinimum", "to": "maximum", "below": "exclusiveMaximum"}
    bounds = [f"{word} {kind[key]:,.0f}" for word, key in limits.items() if key in kind]
    return " ".join([kind.get("format") or TYPES[kind["type"]], *bounds])


TABLES: Tables = {
    "model": lambda: table(ModelSettings),
    "server": lambda: table(HostSettings),
    "other-variables": lambda: table(OtherVariables),
    "archive": lambda: table(Options),
}

if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE, TABLES, BY), encoding="utf-8")
