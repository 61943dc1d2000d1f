"""A hook of mkdocs': tables of settings, made of the descriptions in their pydantic models.

``<!-- table: interpool.handler.config.ModelSettings -->`` in a page becomes that class's table.
"""

from __future__ import annotations

import re
from pydoc import locate
from typing import Any

from marked import markdown_table
from pydantic import TypeAdapter

MARKER = re.compile(r"<!-- table: (\S+) -->")
HEAD = ["setting", "type and unit", "default", "what it does"]
TYPES = {"array": "paths", "integer": "whole number", "number": "number", "string": "text"}


def on_page_markdown(markdown: str, **_others: object) -> str:
    """The page's text with tables in place of their markers."""
    return MARKER.sub(lambda marker: markdown_table(HEAD, rows(locate(marker[1]))), markdown)


def rows(settings: Any) -> list[list[str]]:
    """A row for each field of a pydantic model, or of a dataclass."""
    fields = TypeAdapter(settings).json_schema()["properties"]
    return [_row(name, field) for name, field in fields.items()]


def _row(name: str, field: dict[str, Any]) -> list[str]:
    kinds = [kind for kind in field.get("anyOf", [field]) if kind["type"] != "null"]
    unit = "".join(f", in {kind['unit']}" for kind in kinds if "unit" in kind)
    default = field.get("default_text") or f"`{_shown(field['default'], name)}`"
    return [
        f"`{name}`",
        " or ".join(_type(kind, name) for kind in kinds) + unit,
        default,
        field["description"],
    ]


def _type(kind: dict[str, Any], name: str) -> str:
    if kind["type"] == "boolean":
        return ", ".join(f"`{_shown(value, name)}`" for value in (False, True))
    if "enum" in kind:
        return ", ".join(f"`{value}`" for value in kind["enum"])
    limits = {"from": "minimum", "above": "exclusiveMinimum", "to": "maximum"}
    bounds = [f"{word} {kind[key]:g}" for word, key in limits.items() if key in kind]
    return " ".join([kind.get("format") or TYPES[kind["type"]], *bounds])


def _shown(value: object, name: str) -> str:
    """A value as a user writes it: variables are 0 or 1 where configuration files have false or true."""
    if isinstance(value, bool):
        return str(int(value)) if name.isupper() else str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
