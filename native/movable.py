"""Moves objects between interpreters: pickled without their tensors.

The tensors travel beside the pickle and share memory with the originals. Private interpreters use it, and the
host's Python for its own objects. Like torch::deploy's movable objects (DeVito et al., 2021, section 4.2).
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import types
from typing import Any

import torch

from interpool.native.errors import ConversionError
from interpool.native.inside import interpreter_id
from interpool.native.upstream.attribute_names import intern_names
from interpool.native.upstream.torch_private import MANGLED


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []
        self.archives: set[tuple[str, int]] = set()
        self._places: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> tuple[int, str] | None:
        if type(obj) is torch.Tensor:
            kind = "tensor"
        elif type(obj) is torch.nn.Parameter:
            kind = "parameter"
        else:
            return None
        place = self._places.setdefault(id(obj), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(obj)  # keeps it alive, so that its id stays valid
        return place, kind

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.nn.Module):
            return _reduced(obj)
        module = str(getattr(obj, "__module__", None))
        if not isinstance(obj, type | types.FunctionType):
            return NotImplemented
        if module == "__main__" and interpreter_id() is None:
            raise pickle.PicklingError(
                f"{obj.__qualname__} is defined in the program itself (__main__), which no interpreter can "
                "import. Move it to a module of its own (models.py) and import it from there"
            )
        if not module.startswith(MANGLED):
            return NotImplemented
        archive = None
        if interpreter_id() is not None:  # the host opens no archives
            from interpool.native.inside.packages import archive_of

            archive = archive_of(module)
        if archive is None:
            raise pickle.PicklingError(f"{obj.__qualname__} is of an archive that interpool did not open")
        self.archives.add(archive)
        return _from_archive, (*archive, module.partition(".")[2], obj.__qualname__)


def _reduced(module: torch.nn.Module) -> Any:
    """Return pickle's own reduction of a module, with ``_set_state`` to set the state."""
    if type(module) in copyreg.dispatch_table:
        return NotImplemented
    reduced = module.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    match reduced:
        case (make, args, dict() as state, *more) if len(more) < 3:
            return make, args, state, *more, *[None] * (2 - len(more)), _set_state
    return reduced


def _set_state(module: torch.nn.Module, state: dict[Any, Any]) -> None:
    intern_names(state)
    module.__setstate__(state)


def _from_archive(path: str, snapshot: int, module: str, name: str) -> Any:
    from interpool.native.inside.packages import open_package

    found = open_package(path, snapshot).importer.import_module(module)
    return functools.reduce(getattr, name.split("."), found)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid: tuple[int, str]) -> torch.Tensor:
        place, kind = pid
        tensor = self._tensors[place]
        if kind == "parameter" and type(tensor) is torch.Tensor:
            wanted = tensor.requires_grad
            tensor = self._tensors[place] = torch.nn.Parameter(tensor.detach(), requires_grad=wanted)
        return tensor


def dump(obj: Any) -> tuple[bytes, list[torch.Tensor], list[tuple[str, int]]]:
    """Return a snapshot of the object: its pickle, its tensors, and the archives of its classes.

    Raises:
        ConversionError: it cannot be pickled; the message says why.
    """
    file = io.BytesIO()
    pickler = _Pickler(file)
    try:
        pickler.dump(obj)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConversionError(
            f"a {type(obj).__qualname__} cannot be moved to other interpreters: {error}. It must "
            "be pickled: use classes that can be imported by name, without open files, locks and lambdas."
        ) from error
    # Omit archives that were opened by path alone: they are found by path.
    return file.getvalue(), pickler.tensors, [archive for archive in sorted(pickler.archives) if archive[1]]


def load(data: bytes, tensors: list[torch.Tensor]) -> Any:
    """Return a copy of a dumped object that shares the tensors' memory.

    Args:
        data: the pickle.
        tensors: the tensors of the original.
    """
    return _Unpickler(io.BytesIO(data), list(tensors)).load()
