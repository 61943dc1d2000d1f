"""Resolves a SPEC, such as ``mypkg.factory:build``, to the object to pack."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.known_failures import row_for
from interpool.archiver_ext.source_lines import source_line
from interpool.archiver_ext.tracebacks import readable_traceback
from interpool.archiver_ext.verify.handlers import is_handler

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from interpool.native.archive.format import EntryKind


@dataclass(frozen=True)
class Found:
    """The module of a SPEC, and the object that it names, before any call."""

    module: object
    value: object


def find_spec(spec: str, root: Path) -> Found:
    """Import the SPEC's module and look up its name.

    Args:
        spec: ``package.module:name``, where name may contain dots.
        root: the project's directory, already on ``sys.path``.

    Raises:
        PackError: the SPEC is malformed, does not import, or names no object.
    """
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise PackError(f"SPEC {spec!r} is not of the form package.module:name, such as mypkg.factory:build")
    if module_name == "__main__":
        raise PackError(
            f"SPEC {spec!r}: __main__ is the script or notebook itself, which pack's process cannot import\n"
            f"  What to do: move {name} to a module, such as models.py, and give models:{name}"
        )
    module = _import(spec, module_name, root)
    return Found(module, _resolve(module, spec, name))


def call_spec(spec: str, root: Path) -> object:
    """Return the object of the SPEC.

    A function, method, class or ``functools.partial`` is called without arguments; any other object is the
    result itself.

    Args:
        spec: as in find_spec.
        root: as in find_spec.

    Raises:
        PackError: see find_spec; or the call raised.
    """
    found = find_spec(spec, root).value
    return _call(found, spec, root) if _is_factory(found) else found


def build_entry(spec: str, root: Path) -> tuple[object, EntryKind]:
    """Return the object to pack, as in call_spec, and its kind.

    Args:
        spec: as in find_spec.
        root: as in find_spec.

    Raises:
        PackError: see call_spec; or no server could call the object.
    """
    made = call_spec(spec, root)
    return made, _kind(made, spec)


def _import(spec: str, module_name: str, root: Path) -> object:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise PackError(
                f"SPEC {spec!r}: there is no module {missing!r} under {root} or on sys.path; "
                "run pack from your project's directory, or give it with --root"
            ) from None
        raise user_error(error, root, f"SPEC {spec!r} does not import") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the user's code may raise any exception)
        raise user_error(error, root, f"SPEC {spec!r} does not import") from None


def _resolve(module: object, spec: str, name: str) -> object:
    found = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            public = [known for known in dir(found) if not known.startswith("_")]
            close = difflib.get_close_matches(part, public, n=3, cutoff=0.5) or public[:5]
            hint = f"; it has {', '.join(close)}" if close else ""
            where = getattr(found, "__name__", type(found).__name__)
            raise PackError(f"SPEC {spec!r}: {where} has no {part!r}{hint}") from None
    return found


def _is_factory(found: object) -> bool:
    return inspect.isroutine(found) or inspect.isclass(found) or isinstance(found, functools.partial)


def _call(factory: object, spec: str, root: Path) -> object:
    assert callable(factory)
    _check_no_arguments(factory, spec)
    try:
        return factory()
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the user's code may raise any exception)
        raise user_error(error, root, f"SPEC {spec!r} raised while building") from None


def _check_no_arguments(factory: Callable[..., object], spec: str) -> None:
    try:
        signature = inspect.signature(factory)
    except ValueError:
        return
    try:
        signature.bind()
    except TypeError as error:
        raise PackError(
            f"SPEC {spec!r} must be callable without arguments, but its signature is "
            f"{signature} ({error}); write a function that calls it and name that"
        ) from None


def _kind(made: object, spec: str) -> EntryKind:
    if is_handler(made):
        return "handler"
    if isinstance(made, torch.nn.Module):
        return "module"
    if callable(made):
        return "callable"
    raise PackError(
        f"SPEC {spec!r} gives a {type(made).__name__}, which no server can call. It must be a "
        "torch.nn.Module, a callable, or a handler with handle() or with preprocess(), "
        "inference() and postprocess()"
    )


def user_error(error: BaseException, root: Path, what: str) -> PackError:
    """Return the PackError for an error of the user's code.

    Args:
        error: the error.
        root: the project's directory.
        what: its activity, the start of the message.
    """
    line = _syntax_line(error, root) or own_frame(error.__traceback__, root)
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    message = f"{line}\n  {what}: {said}" if line else f"{what}: {said}"
    if isinstance(error, SystemExit):
        message += (
            "\n  What to do: put what is for the command line (parse_args, sys.exit, training) under "
            "if __name__ == '__main__'"
        )
    message += row_for(said)
    return PackError(message, readable_traceback(error))


def _syntax_line(error: BaseException, root: Path) -> str:
    if not isinstance(error, SyntaxError) or error.filename is None:
        return ""
    path = Path(error.filename).resolve()
    if not path.is_relative_to(root):
        return ""
    return source_line(path.relative_to(root), error.lineno, error.text)


def own_frame(tb: TracebackType | None, root: Path) -> str:
    """Return the innermost line of a traceback in the project, as ``path:line: text``, or "".

    Args:
        tb: the traceback.
        root: the project's directory.
    """
    line = ""
    for frame in traceback.extract_tb(tb):
        try:
            relative = Path(frame.filename).resolve().relative_to(root)
        except ValueError:
            continue
        if Path(frame.filename).resolve().is_relative_to(sys.prefix):
            continue
        line = source_line(relative, frame.lineno, frame.line)
    return line
