"""Settings as their pydantic models describe them, for the help of commands and for docs/settings.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ONLY_A_LINK = re.compile(rf" \({_LINK.pattern}\)")


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: as users write it.
        description: what it does, in Markdown.
        default: its default value, or what decides it, in Markdown.
        option: the option of ``interpool run``; "" if there is none.
        kinds: the JSON schemas of its values, without null.
    """

    name: str
    description: str
    default: str
    option: str
    kinds: tuple[dict[str, Any], ...]

    @property
    def summary(self) -> str:
        """The first sentence of the description as plain text, without its full stop."""
        return plain(_ONLY_A_LINK.sub("", self.description)).partition(". ")[0].removesuffix(".")


def described(settings: Any) -> list[Setting]:
    """Describe the fields of a pydantic model, or of a dataclass."""
    fields = TypeAdapter(settings).json_schema()["properties"]
    return [_setting(name, field) for name, field in fields.items()]


def plain(markdown: str) -> str:
    """Text without Markdown's links and marks of code."""
    return _LINK.sub(r"\1", markdown).replace("`", "")


def shown(value: object, name: str) -> str:
    """A setting's value as a user writes it: 0 or 1 in a variable, false or true in a configuration file."""
    if isinstance(value, bool):
        return str(int(value)) if name.isupper() else str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _setting(name: str, field: dict[str, Any]) -> Setting:
    kinds = tuple(kind for kind in field.get("anyOf", [field]) if kind["type"] != "null")
    default = field.get("default_text") or f"`{shown(field['default'], name)}`"
    return Setting(name, field["description"], default, field.get("option", ""), kinds)
