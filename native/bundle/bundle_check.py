"""Tries a bundle: a child process starts an interpreter from it.

The trial also stores a note about ``import torch`` in the bundle (``inside/import_notes.py``), so that
programs' first interpreters can defer imports.

Run as a program, this module is that process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from interpool.native.child_process import ChildError, Program, run, serve
from interpool.native.errors import InterpoolError, ProvisioningError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_SECONDS = 600.0
# Expression that does not trigger lazy attributes of these modules.
_FILES = (
    "[file for module in list(__import__('sys').modules.values())"
    " if isinstance(file := getattr(module, '__file__', None), str)]"
)


@dataclass(frozen=True)
class _Trial:
    root: str
    imports: list[str]


@dataclass(frozen=True)
class _Outcome:
    """The failure, or "", and files of modules from outside of the bundle."""

    failure: str
    foreign: list[str]


_PROGRAM: Final = Program(__spec__.name, _Trial, _Outcome)


def try_bundle(root: Path, imports: Sequence[str]) -> None:
    """Import torch and these modules in an interpreter of the bundle.

    Args:
        root: of the bundle.
        imports: names of modules.

    Raises:
        ProvisioningError: a file is missing, or a module comes from outside of the bundle.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith(("PYTHON", "INTERPOOL_")) and name != "PYTHONPATH") and "TORCH" not in name
    }
    try:
        outcome = run(
            _PROGRAM, _Trial(str(root), list(imports)), env=env, timeout=_SECONDS, capture_stderr=True
        )
    except ChildError as error:
        raise ProvisioningError(f"a trial of the bundle {error}: {error.stderr.strip()}") from error
    if outcome.failure:
        raise ProvisioningError(f"the bundle is incomplete: {outcome.failure}")
    if outcome.foreign:
        raise ProvisioningError(
            f"the bundle uses files outside of it: {', '.join(outcome.foreign[:10])}",
            "Name the packages that these belong to",
        )


def _work(trial: _Trial) -> Iterator[_Outcome]:
    from interpool.native import _native

    try:
        search_path = _native.prepare_from(trial.root)
        pool = _native.Pool(_native.PoolSettings(1), search_path)
        with pool.acquire() as session:
            for name in trial.imports:
                session.global_("importlib", "import_module")(name)
            files = session.global_("builtins", "eval")(
                _FILES, session.global_("builtins", "dict")()
            ).to_value()
    except InterpoolError as error:
        yield _Outcome(str(error), [])
        return
    yield _Outcome(
        "", [file for file in files if os.path.isabs(file) and not file.startswith(f"{trial.root}/")]
    )


if __name__ == "__main__":
    serve(_PROGRAM, _work)
