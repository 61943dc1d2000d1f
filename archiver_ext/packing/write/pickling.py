"""Explains which part of an object cannot be pickled."""

from __future__ import annotations

import linecache
import pickle
import traceback
from pathlib import Path
from types import FrameType, FunctionType, ModuleType

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.source_lines import source_line
from interpool.archiver_ext.tracebacks import is_machinery, is_packaged, readable_traceback


def was_pickling(error: BaseException) -> bool:
    """Return whether the error was raised while the object was pickled, not while it was scanned."""
    frames = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(code.co_name == "dump" and code.co_filename == pickle.__file__ for code in frames)


def explain_unpicklable(error: BaseException, what: str, root: Path) -> PackError:
    """Return the error for an object that pickling refused.

    Args:
        error: from pickling; the variables of the pickler's frames in its traceback give the path to the
            unpicklable part.
        what: describes the object.
        root: the project's directory.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    place = "".join(f".{key}" for key in _keys(frames))
    part = _innermost(frames)
    line = _definition(part, root)
    where = f" at {place[1:]}" if place else ""
    message = f"{what} cannot be pickled{where} ({type(part).__name__}): {type(error).__name__}: {error}"
    advice = "  What to do: " + _advice(part)
    head = f"{line}\n  {message}" if line else message
    in_user_code = any(not is_machinery(frame.f_code.co_filename) for frame in frames)
    return PackError(f"{head}\n{advice}", readable_traceback(error) if in_user_code else "")


def refuse_torchs_own(entry: object, spec: str) -> None:
    """Refuse objects that torch made from a model for other uses, and layers without weights.

    Args:
        entry: the object to pack.
        spec: its SPEC, for the message.

    Raises:
        PackError: the object is one, or visibly contains one.
    """
    held = [("", entry), *vars(entry).items()] if hasattr(entry, "__dict__") else [("", entry)]
    parts = [
        (".".join(filter(None, (name, inner))), module)
        for name, part in held
        for inner, module in (part.named_modules() if isinstance(part, torch.nn.Module) else [("", part)])
    ]
    for name, part in parts:
        where = f"{f' at {name}' if name else ''} ({type(part).__name__})"
        if advice := _made_otherwise(part):
            raise PackError(f"the object that {spec} gives cannot be pickled{where}\n  What to do: {advice}")
        if isinstance(part, LazyModuleMixin) and part.has_uninitialized_params():  # type: ignore[misc]
            raise PackError(
                f"the object that {spec} gives has no weights yet{where}: its first call would make them, "
                "and other random ones in each interpreter\n"
                "  What to do: load its trained weights, or call it once where it is built"
            )


def _made_otherwise(part: object) -> str:
    """Return advice about an object of a class that cannot be packed; "" for others."""
    homes = [each.__module__ for each in type(part).__mro__]
    if isinstance(part, FunctionType):  # the hook of such an object
        homes.append(str(part.__module__))
    return next((_OTHERWISE[start] for start in _OTHERWISE for home in homes if home.startswith(start)), "")


_GROUPLESS = (
    "give pack the model without what needs a process group (torch.distributed), which no server sets up: "
    "the .module of a DistributedDataParallel"
)
OUT_OF_THE_PROGRAM = (
    "move it from the script or notebook (__main__) to a module, such as models.py, and import it from there"
)
_PARAMETRIZED = (
    "before the model is given to pack, fold the parametrizations into plain weights: for each such layer, "
    "torch.nn.utils.parametrize.remove_parametrizations(layer, 'weight'). After weight_norm also "
    "layer._load_state_dict_pre_hooks.clear()"
)
# By the prefix of the class's module.
_OTHERWISE = {
    "torch.export.": (
        "torch.export made it: give pack the module that was exported. Or save the program with "
        "torch.export.save beside the code and put the file in with --data. Then call "
        "torch.export.load(path).module() when the model is first called"
    ),
    "torch.nn.parallel.distributed": _GROUPLESS,
    "torch._C._distributed_c10d": _GROUPLESS,
    "torch.nn.utils.parametrizations": _PARAMETRIZED,  # the hook that weight_norm leaves
}


def _advice(part: object) -> str:
    if advice := _made_otherwise(part):
        return advice
    if isinstance(part, torch.nn.Module) and parametrize.is_parametrized(part):
        return _PARAMETRIZED
    owner = part if isinstance(part, (type, FunctionType)) else type(part)
    if owner.__module__ == "__main__":
        return OUT_OF_THE_PROGRAM
    if is_packaged(owner.__module__):
        return (
            "it was loaded from another archive, whose code is not packed again: build the model from its "
            "source, and load only its state_dict() from there"
        )
    if isinstance(part, ModuleType):
        return "import it where it is used, not into an attribute"
    if isinstance(part, (type, FunctionType)):
        return (
            "define it at the top level of a module, or make it when the model is first used, not when it is "
            "built. functools.partial of a function at the top level can hold what a closure would"
        )
    return (
        "make it when the model is first used, not when it is built. Or have its owner's __getstate__ leave "
        "it out, and its __setstate__ make another"
    )


def _keys(frames: list[FrameType]) -> list[str]:
    return [
        str(frame.f_locals["k"])
        for frame in frames
        if frame.f_code.co_name == "_batch_setitems" and frame.f_locals.get("k", "_modules") != "_modules"
    ]


def _innermost(frames: list[FrameType]) -> object:
    parts = [
        frame.f_locals["obj"]
        for frame in frames
        if frame.f_code.co_name == "save" and "obj" in frame.f_locals
    ]
    return parts[-1] if parts else None


def _definition(part: object, root: Path) -> str:
    if not isinstance(part, FunctionType):
        return ""
    code = part.__code__
    path = Path(code.co_filename).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        return ""
    text = linecache.getline(str(path), code.co_firstlineno)
    return source_line(path.relative_to(root), code.co_firstlineno, text)
