"""Describes private names of other projects, and checks whether they still fit."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class PrivateName:
    """A name that its owner's next release may remove or change.

    Attributes:
        where: ``module:name``, with dots for members of a class; ``module`` alone for its source text.
        why: its purpose here.
        parameters: those of the function, in order, if interpool calls or overrides it.
        mentions: words that the function's code (or the module's source text) must contain: attributes that
            it sets, variables that we read from its frames, known constants.
        value: its required value.
        before: its place in earlier releases.
    """

    where: str
    why: str
    parameters: tuple[str, ...] | None = None
    mentions: tuple[str, ...] = ()
    value: object = None
    before: str = ""

    def resolve(self) -> Any:
        """Return the object with this name; imports its module.

        Raises:
            ImportError: the module does not exist.
            AttributeError: it has no such name.
        """
        where = self.before if self.before and not _source_file(self.where.partition(":")[0]) else self.where
        module, _, name = where.partition(":")
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))

    def problem(self) -> str:
        """Return how the name differs from this description; "" if it fits."""
        import inspect  # only checks need it, and every private interpreter imports this module

        if ":" not in self.where:
            return self._source_problem()
        try:
            found = self.resolve()
        except (ImportError, AttributeError):
            return f"{self.where} is gone"
        if self.value is not None and found != self.value:
            return f"{self.where} is {found!r}, not {self.value!r}"
        if self.parameters is not None:
            parameters = tuple(inspect.signature(found).parameters)
            if parameters != self.parameters:
                return f"{self.where} takes ({', '.join(parameters)}), not ({', '.join(self.parameters)})"
        if self.mentions:
            unknown = set(self.mentions) - _words(inspect.unwrap(found).__code__)
            if unknown:
                return f"{self.where} no longer uses {', '.join(sorted(unknown))}"
        return ""

    def _source_problem(self) -> str:
        source = _source_file(self.where)
        if source is None:
            return f"{self.where} is gone"
        text = source.read_text(encoding="utf-8")
        unknown = [mention for mention in self.mentions if mention not in text]
        return f"{self.where} no longer has {', '.join(map(repr, unknown))}" if unknown else ""


def problems(names: Iterable[PrivateName]) -> list[str]:
    """Return missing or changed ones of these names."""
    return list(dict.fromkeys(problem for name in names if (problem := name.problem())))


def _words(code: CodeType) -> set[object]:
    """Return names and constants in a function's code, including nested functions."""
    found: set[object] = {*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _words(constant)
        else:
            found |= set(constant) if isinstance(constant, tuple) else {constant}
    return found


def _source_file(module: str) -> Path | None:
    """Return a module's source file; imports at most its top-level package."""
    top, _, rest = module.partition(".")
    spec = importlib.util.find_spec(top)
    folders = (spec.submodule_search_locations or []) if spec is not None and rest else []
    candidates = [Path(folder, f"{rest.replace('.', '/')}.py") for folder in folders]
    if spec is not None and spec.origin is not None and not rest:
        candidates.append(Path(spec.origin))
    return next((path for path in candidates if path.is_file()), None)
