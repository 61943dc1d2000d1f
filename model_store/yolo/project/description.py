"""Networks as Darknet describes them: sections of settings, one for each layer."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Section:
    """One section: ``[kind]``, and lines of ``name=value``."""

    kind: str
    settings: dict[str, str] = field(default_factory=dict)

    def number(self, name: str, default: int = 0) -> int:
        """A setting that is an integer."""
        return int(self.settings.get(name, default))

    def numbers(self, name: str) -> list[int]:
        """A setting of integers with commas between them."""
        return [int(each) for each in self.settings[name].split(",")]


def read_description(text: str) -> list[Section]:
    """All sections, the first of them ``[net]``; raises ValueError for a line that belongs to none."""
    sections: list[Section] = []
    for line in (line.partition("#")[0].strip() for line in text.splitlines()):
        if line.startswith("["):
            sections.append(Section(line.strip("[]")))
        elif line:
            name, equals, value = line.partition("=")
            if not (equals and sections):
                raise ValueError(f"neither a section nor a setting: {line!r}")
            sections[-1].settings[name.strip()] = value.strip()
    return sections
