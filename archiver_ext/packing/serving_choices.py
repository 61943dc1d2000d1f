"""The user's choices of serving: by option, in the plan, or beside the SPEC.

For each key, the first of these that sets it counts. Beside the SPEC it is a dict::

    serving = {"batches": "each", "grad": True}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from interpool.archiver_ext.errors import PackError
from interpool.native.archive.format import Batches, EntryKind, Serving

if TYPE_CHECKING:
    from interpool.archiver_ext.packing.spec import Found

CONVENTION = "serving"


@dataclass(frozen=True)
class Choices:
    """Choices of serving; None means no choice.

    The texts in each field's type describe it, and what the default means; the commands show them as help.
    """

    batches: Annotated[
        Batches | None,
        "how requests become calls: stack (each is one sample), batch (each is a batch) or each "
        "(one call for each)",
        "the first that answers the example inputs correctly",
    ] = None
    grad: Annotated[bool | None, "the module's forward computes gradients"] = None
    train_mode: Annotated[bool | None, "keep the mode in which the module was built"] = None

    def or_else(self, other: Choices) -> Choices:
        """Return these choices, with the other's in place of missing ones."""
        mine, others = asdict(self), asdict(other)
        return Choices(**{word: others[word] if mine[word] is None else mine[word] for word in mine})

    @classmethod
    def of(cls, given: Mapping[str, Any], where: str) -> Choices:
        """Convert a plan's table, or a dict beside a SPEC.

        Args:
            given: the choices by key.
            where: the place of the table, for messages.

        Raises:
            PackError: a key is unknown, or a value is invalid.
        """
        words = [each.name for each in fields(cls)]
        unknown = sorted(map(str, given.keys() - set(words)))
        if unknown:
            raise PackError(
                f"{where}: it says {unknown[0]!r}, which means nothing; it can say {', '.join(words)}"
            )
        if given.get("batches") not in (None, *get_args(Batches)):
            known = ", ".join(get_args(Batches))
            raise PackError(f"{where}: batches is {given['batches']!r}, and can be one of {known}")
        for word in ("grad", "train_mode"):
            if type(given.get(word)) not in (bool, type(None)):
                raise PackError(f"{where}: {word} is {given[word]!r}, and can be true or false")
        return cls(**given)


NO_CHOICES: Final = Choices()


def choices_beside(found: Found, spec: str) -> Choices:
    """Return the choices beside the SPEC; without a dict there, none.

    Args:
        found: the SPEC's module and object.
        spec: the SPEC, for messages.

    Raises:
        PackError: they are invalid.
    """
    given = getattr(found.module, CONVENTION, None)
    if not isinstance(given, dict):
        return Choices()
    return Choices.of(given, f"{spec.partition(':')[0]}:{CONVENTION}")


def serving_of(choices: Choices, kind: EntryKind) -> Serving:
    """Return the choices as the manifest records them.

    Args:
        choices: the user's.
        kind: of the entry.

    Raises:
        PackError: the choices do not fit this kind of entry.
    """
    if kind == "handler" and choices.batches is not None:
        raise PackError(
            f"batches is {choices.batches!r}, and the model is a handler, which gets TorchServe's batches as "
            "they are\n  What to do: leave it out"
        )
    if kind != "module" and (choices.grad or choices.train_mode):
        word = "grad" if choices.grad else "train_mode"
        raise PackError(
            f"{word} is for a torch.nn.Module, and the model is a {kind}, whose mode never changes\n"
            "  What to do: leave it out"
        )
    return {
        "batches": choices.batches,
        "parts": None,
        "grad": bool(choices.grad),
        "train_mode": bool(choices.train_mode),
    }
