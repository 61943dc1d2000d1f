"""Imports torch and defers the modules that eager inference does not use.

``import torch`` imports 1,100 modules, 65 MB of Python heap, of which inference uses a fraction. Modules of
the families in ``native/upstream/torch_imports.py`` can be *deferred*: module objects that lack only their
contents. The first use of one imports its whole family, in torch's own order. A use is an attribute, an
import of a member, a pickle, ``inspect``, or an operator that the family defines. After that, nothing differs
from a full import.

To defer modules, an interpreter needs the note of a full import (``import_fully``). The note comes from
another interpreter of this process or, through the cache (``import_notes.py``), from an earlier process.
``import_lean`` defers a module only if the note contains it. The process's dispatcher must have an entry for
all that a full import registers. If the note comes from the cache, the first interpreter repeats those
registrations, without the kernels.

If another thread imports the family already, the user waits for one of importlib's locks, as in any import.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
from importlib.abc import Loader
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from threading import get_ident
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import _interpool
from interpool.native.inside import import_notes
from interpool.native.inside.later_modules import LaterModules
from interpool.native.upstream import torch_imports
from interpool.native.upstream.cpython_private import IMPORTLIB_FILE, ModuleLock, forget_source_lines
from interpool.native.upstream.torch_private import allow_generators, tree_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import FrameType


FULL_IMPORT = "INTERPOOL_FULL_IMPORT"
"""Environment variable: ``1`` makes every interpreter import torch in full; the default is ``0``."""


def import_torch() -> None:
    """Import torch; defer modules if the note of a full import is available.

    Raises:
        ValueError: the environment variable is neither ``0`` nor ``1``.
    """
    wanted = os.environ.get(FULL_IMPORT) or "0"
    if wanted not in ("0", "1"):
        raise ValueError(f"{FULL_IMPORT} is {wanted!r}: it may be 0 or 1")
    if wanted == "1":
        _interpool.keep_import_note(import_fully())
        return
    if note := _interpool.import_note():
        import_lean(note)
        return
    folder = _interpool.notes_folder()
    note = import_notes.read(folder) if folder else ""
    if note:
        try:
            import_lean(note, first=True)
        except BaseException as error:
            if not import_notes.remove(folder):
                error.add_note(
                    f"interpool's note in {folder} cannot be removed: set {FULL_IMPORT}=1, or remove it"
                )
            raise
    else:
        with import_notes.watch() as seen:
            note = import_fully()
        if folder:
            import_notes.write(folder, note, seen)
    _interpool.keep_import_note(note)


def import_fully() -> str:
    """Import torch in full. Returns the note that ``import_lean`` needs in other interpreters, JSON."""
    import torch  # noqa: F401

    noted: dict[str, _Recorded] = {}
    for name, module in sys.modules.items():
        if _is_torchs(name) and isinstance(getattr(module, "__loader__", None), SourceFileLoader):
            parent, _, last = name.rpartition(".")
            bound = vars(sys.modules[parent]).get(last) is module if parent else True
            noted[name] = _Recorded(str(module.__file__), hasattr(module, "__path__"), bound)
    others = [name for name in sys.modules if "." not in name]
    registered = _interpool.noted_registrations()
    constants = {
        module: {name: sorted(found[name]) for name in names if name in (found := vars(sys.modules[module]))}
        for module, names in torch_imports.CONSTANTS.items()
        if module in sys.modules
    }
    record = {
        "torch": noted,
        "others": others,
        "later": [name for name in torch_imports.OF_OTHERS if name in sys.modules],
        "registered": registered,
        "constants": constants,
    }
    return json.dumps(record)


def import_lean(note: str, *, first: bool = False) -> None:
    """Import torch, and defer the modules of ``torch_imports.FAMILIES`` that this import does not use.

    Args:
        note: the result of ``import_fully`` in another interpreter.
        first: whether that was in another process, so that this process has no registrations yet.
    """
    global _starting
    record = json.loads(note)
    noted = {name: _Recorded(*fields) for name, fields in record["torch"].items()}
    _others.update(record["others"])
    for module, constants in record["constants"].items():
        _objects.setdefault(module, {}).update({name: frozenset(some) for name, some in constants.items()})
    finder = _Finder(noted, record["registered"] if first else "")
    sys.meta_path.insert(0, finder)
    _starting = True
    try:
        with LaterModules(record["later"]):
            import torch  # noqa: F401

            finder.torch_is_there = True
            for name, each in noted.items():
                _ensure_imported(name, each.bound)  # parents come first
    finally:
        _starting = False
        sys.meta_path.remove(finder)
    for importer, names in torch_imports.LATER_NAMES.items():
        if importer in sys.modules:
            _remove_placeholders(sys.modules[importer], names)
    for where in torch_imports.LOOK_UPS:
        _import_before_look_up_fails(where)
    for where in torch_imports.LISTS:
        _import_before_list(where)
    for where in torch_imports.TREE_NODES:
        _defer_node(where)
    allow_generators()
    _interpool.register_deferred(True)
    _finish_families()


def import_registering() -> bool:
    """Import the family that registers operators. Returns whether there was anything to import.

    C++ calls this if a kernel is missing that another interpreter's Python has registered.
    """
    family = _families.get(torch_imports.REGISTERING)
    return family is not None and not _starting and family.import_all()


def known_names() -> set[str]:
    """Return the top-level modules of a full import, whether or not they were imported here."""
    return _others


def is_deferred(module: ModuleType) -> bool:
    """Return whether a module's contents were not imported yet."""
    return type(module) is _DeferredModule


def deferred_count() -> int:
    """Return the number of deferred modules. Uses no builtin function, as a model may have removed it."""
    count = 0
    for family in _families.values():
        count += family.deferred.__len__()
    return count


class _Recorded(NamedTuple):
    """A module of a full import.

    Attributes:
        file: its source file.
        package: whether it has submodules.
        bound: whether it is an attribute of its parent.
    """

    file: str
    package: bool
    bound: bool


class _Family:
    """The deferred modules of one family, in the order of a full import."""

    def __init__(self, name: str) -> None:
        self._lock = f"interpool's torch family {name}"
        self._thread = 0  # the thread that imports the family; 0 for none
        self._done = False
        self.begun = False  # an import of one of its modules has begun
        self.deferred: dict[str, ModuleType] = {}
        self._under_way: set[str] = set()  # modules whose contents are being imported

    def on_import(self, name: str) -> None:
        """Import a module that the importing thread of this family meets in an import statement."""
        if self._thread == get_ident():
            self._import(name)

    def touch(self, name: str) -> None:
        """Import a module's contents and its family.

        During an import of another family, this module alone.
        """
        if _starting or self._thread == get_ident():
            self._import(name)
        elif any(family._thread == get_ident() for family in _families.values()):
            self._import_alone(name)
        else:
            self.import_all()

    def _import_alone(self, name: str) -> None:
        """Import one module during another family's import, under this family's lock."""
        lock = self._locked()
        if lock is None:
            return
        try:
            self._import(name)
        finally:
            lock.__exit__(None, None, None)

    def _locked(self) -> Any:
        """Acquire and return the family's lock; None if that would deadlock.

        In a deadlock, another thread imports this family and waits for what this thread imports. As in any
        circular import, this thread continues with what exists.
        """
        lock = ModuleLock(self._lock)
        try:
            lock.__enter__()
        except RuntimeError:
            return None
        return lock

    def import_all(self) -> bool:
        """Import the whole family. Returns whether this thread or another had to import anything."""
        if self._done or self._thread == get_ident():
            return False
        lock = self._locked()
        if lock is None:
            return False
        try:
            if not self._done:
                self._thread = get_ident()
                # Outside the caller's modes: its default device, for example, must not apply to torch's
                # constants.
                _interpool.call_fresh(self._import_deferred)
                self._done = True
                if self is _families[torch_imports.REGISTERING]:
                    _interpool.register_deferred(False)
        finally:
            self._thread = 0
            lock.__exit__(None, None, None)
        _finish_families()
        return True

    def _import_deferred(self) -> None:
        if self is _families[torch_imports.REGISTERING]:
            _remove_nodes()
        names = tuple(self.deferred)
        try:
            for name in names:
                self._import(name)
        finally:
            for name in self.deferred.keys() & _bound:  # an import failed
                _bind(name, self.deferred[name])

    def _import(self, name: str) -> None:
        if name not in self.deferred or name in self._under_way:
            return
        parent = name.rpartition(".")[0]
        if parent in _family:
            _family[parent].touch(parent)
        if name not in self.deferred or name in self._under_way:  # its parent's import has imported it
            return
        self.begun = True
        module = self.deferred[name]
        contents = _contents(module)
        before = contents.copy()
        # Remove deferred submodules: the module's own imports set these attributes again.
        for each in [each for each, value in before.items() if isinstance(value, _DeferredModule)]:
            del contents[each]
        spec = contents["__spec__"]
        spec._initializing = True
        self._under_way.add(name)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            contents.clear()
            contents.update(before)
            raise
        finally:
            self._under_way.discard(name)
            spec._initializing = False
        del self.deferred[name]
        contents.update(_objects.get(name, {}))
        if type(module) is _DeferredModule:  # it may have changed its class
            module.__class__ = ModuleType  # type: ignore[assignment]
        if name in _bound or (parent in _family and parent in _family[parent]._under_way):
            _bind(name, module)
        for importer, names in torch_imports.LATER_NAMES.items():
            if name in names and importer in sys.modules:
                _replace_placeholders(sys.modules[importer], contents, names[name])


_families: dict[str, _Family] = {name: _Family(name) for name in torch_imports.FAMILIES}
_family: dict[str, _Family] = {}  # by module name, for modules that are or were deferred
_bound: set[str] = set()  # modules that are attributes of their parents after a full import
_starting = False  # while torch itself is imported
_others: set[str] = set()
_objects = {
    name: {each: make() for each, make in makers.items()}
    for name, makers in torch_imports.OBJECTS_BEFORE.items()
}

_contents: Callable[[ModuleType], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__
# Attributes that Python's imports, reloads and tracebacks read; deferred modules have them.
_KNOWN = frozenset(
    {"__cached__", "__class__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}
)


class _DeferredModule(ModuleType):
    """A module whose contents were not imported yet."""

    def __getattribute__(self, name: str) -> Any:
        contents = _contents(self)
        own = contents["__name__"]
        if name in _KNOWN or name == "__reduce_ex__":
            if name == "__spec__":  # import statements read it
                _family[own].on_import(own)
            return ModuleType.__getattribute__(self, name)
        if f"{own}.{name}" in _bound and name in contents:
            return contents[name]  # a submodule
        if name in _objects.get(own, ()):
            return _objects[own][name]
        later = _placeholder(own, name)
        if later is not None:
            return later
        _family[own].touch(own)
        return ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        own = _contents(self)["__name__"]
        imported = isinstance(value, ModuleType) and sys.modules.get(f"{own}.{name}") is value
        if not imported:
            _family[own].touch(own)
        ModuleType.__setattr__(self, name, value)  # the import may have changed its class

    def __delattr__(self, name: str) -> None:
        own = _contents(self)["__name__"]
        _family[own].touch(own)
        ModuleType.__delattr__(self, name)

    def __reduce_ex__(self, _protocol: object) -> tuple[Any, ...]:
        # Picklers with support for modules check for the exact type, which this class is not.
        return importlib.import_module, (self.__name__,)


class _Finder:
    """Finds modules of families while torch is imported, and makes their loaders defer them."""

    def __init__(self, noted: dict[str, _Recorded], registered: str) -> None:
        self._noted = noted
        self._registered = registered  # registrations to repeat before Python registers more
        self.torch_is_there = False

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if self._registered and "torch._C" in sys.modules:
            registered, self._registered = self._registered, ""
            _interpool.repeat_registrations(registered)
        # Drop the source lines that torch's decorators have cached: the next import reuses their memory.
        forget_source_lines(("/",))
        noted = self._noted.get(name)
        if noted is None or name in torch_imports.EAGER:
            return None
        folders = [noted.file.rpartition("/")[0]] if noted.package else None
        spec = spec_from_file_location(name, noted.file, submodule_search_locations=folders)
        if spec is None:
            return None
        family = _family_of(name)
        if family == "" and self.torch_is_there:
            family = torch_imports.REGISTERING  # only modules of a family import it
        if family == "":
            return None
        spec.loader = _DeferredLoader(spec.loader, _families[family])
        return spec


class _DeferredLoader(Loader):
    """Creates a deferred module, and restores the module's own loader."""

    def __init__(self, stock: Any, family: _Family) -> None:
        self._stock = stock
        self._of = family

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._stock.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._stock
        name = module.__spec__.name
        _family[name] = self._of
        self._of.deferred[name] = module
        module.__class__ = _DeferredModule


def _finish_families() -> None:
    """Import the rest of each family of which a module was imported, after that import has ended."""
    if not any(family._thread == get_ident() for family in _families.values()):
        for family in _families.values():
            if family.begun:
                family.import_all()


def _bind(name: str, module: ModuleType) -> None:
    parent, _, last = name.rpartition(".")
    if parent:
        _contents(sys.modules[parent])[last] = module


def _is_torchs(name: str) -> bool:
    return name.startswith("torch.") or _family_of(name) != ""


def _family_of(name: str) -> str:
    """Return the family of a module; "" if it has none."""
    for family, roots in torch_imports.FAMILIES.items():
        if any(name == root or name.startswith(root + ".") for root in roots):
            return family
    return ""


def _ensure_imported(name: str, bound: bool) -> None:
    """Import a module, deferred or not, and set or restore its parent's attribute as a full import does."""
    parent, _, last = name.rpartition(".")
    if not parent:
        importlib.import_module(name)
        return
    above = importlib.import_module(parent)
    before = _contents(above).get(last)
    module = importlib.import_module(name)
    if bound:
        _bound.add(name)
        if not is_deferred(above):
            _bind(name, module)  # an import of the parent's contents may have removed it
    elif not is_deferred(above) and before is not None and before is not module:
        _contents(above)[last] = before


# ---- names that other modules import from deferred ones ----------------------------------------------------


class _Placeholder:
    """Placeholder for a name of a deferred module, for importers that only store it or check classes."""

    def __init__(self, module: str, name: str, others: tuple[Any, ...] = ()) -> None:
        self._module = module
        self._name = name
        self._others = others

    def there(self) -> Any:
        """Return the real object; in an annotation, its union with the others."""
        found = getattr(importlib.import_module(self._module), self._name)
        for other in self._others:
            found = found | other
        return found

    def __or__(self, other: object) -> _Placeholder:
        return _Placeholder(self._module, self._name, (*self._others, other))

    def __instancecheck__(self, instance: object) -> bool:
        module = sys.modules.get(self._module)
        return module is not None and not is_deferred(module) and isinstance(instance, self.there())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        asked = torch_imports.QUESTIONS.get((self._module, self._name))
        if (
            asked is not None
            and is_deferred(sys.modules[self._module])
            and not _check(asked, *args, **kwargs)
        ):
            return False
        return self.there()(*args, **kwargs)


def _check(where: str, tensor: object) -> bool:
    """Ask a C++ function about an object; False if it is no tensor."""
    module, _, name = where.partition(":")
    contents = vars(sys.modules[module])
    return isinstance(tensor, contents["TensorBase"]) and bool(contents[name](tensor))


_Member = tuple[str, str]  # a deferred module, and a name in it
# The modules, or functions in modules, that get a placeholder for a member.
_PLACEHOLDER_USERS: dict[_Member, set[_Member]] = {}
for _importer, _names in torch_imports.LATER_NAMES.items():
    for _module, _some in _names.items():
        for _one in _some:
            _PLACEHOLDER_USERS.setdefault((_module, _one), set()).add((_importer, "<module>"))
for _where, _names in torch_imports.CLASS_CHECKS.items():
    for _module, _some in _names.items():
        for _one in _some:
            _PLACEHOLDER_USERS.setdefault((_module, _one), set()).add(_where)


def _placeholder(module: str, name: str) -> _Placeholder | None:
    """Return a placeholder if the importer of this name can use one; otherwise None."""
    users = _PLACEHOLDER_USERS.get((module, name))
    if users is None:
        return None
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == IMPORTLIB_FILE:
        frame = frame.f_back
    user = (frame.f_globals.get("__name__", ""), frame.f_code.co_name) if frame is not None else ("", "")
    return _Placeholder(module, name) if user in users else None


def _remove_placeholders(importer: ModuleType, names: dict[str, tuple[str, ...]]) -> None:
    """Remove placeholders from an importer's attributes until they are first used."""
    contents = vars(importer)
    sources = {
        name: module
        for module, some in names.items()
        for name in some
        if isinstance(contents.get(name), _Placeholder)
    }
    stock = contents.get("__getattr__")
    if sys.version_info >= (3, 14):
        list(_annotations(importer, sources))  # evaluate annotations while the names exist
    for name in sources:
        del contents[name]

    def bring(name: str) -> Any:
        """Override of the module's ``__getattr__``."""
        if name in sources:
            _family[sources[name]].touch(sources[name])
            if name in contents:
                return contents[name]
        if stock is not None:
            return stock(name)
        raise AttributeError(f"module {importer.__name__!r} has no attribute {name!r}")

    def list_all() -> list[str]:
        """Override of the module's ``__dir__``."""
        for name in sources:
            getattr(importer, name)
        return sorted(contents)

    if sources:
        contents["__getattr__"] = bring
        contents.setdefault("__dir__", list_all)
        _stock_of[importer.__name__] = (stock, list_all, tuple(sources))


_stock_of: dict[str, tuple[Any, Any, tuple[str, ...]]] = {}


def _replace_placeholders(importer: ModuleType, source: dict[str, Any], names: tuple[str, ...]) -> None:
    """Replace an importer's placeholders by the objects of a module that has its contents now."""
    contents = vars(importer)
    stock, listing, left_out = _stock_of.get(importer.__name__, (None, None, ()))
    for name in names:
        if isinstance(contents.get(name), _Placeholder) or (name in left_out and name not in contents):
            contents[name] = source[name]
    for noted in _annotations(importer, names):
        for name, annotation in noted.items():
            if isinstance(annotation, _Placeholder):
                noted[name] = annotation.there()
    if left_out and all(name in contents for name in left_out):
        del _stock_of[importer.__name__]
        if stock is None:
            contents.pop("__getattr__", None)
        else:
            contents["__getattr__"] = stock
        if contents.get("__dir__") is listing:
            del contents["__dir__"]


def _annotations(module: ModuleType, names: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the annotations of a module's functions.

    From 3.14 on, access evaluates annotations, so only functions that use one of the names are included.
    """
    for function in vars(module).copy().values():
        if not isinstance(function, FunctionType) or function.__module__ != module.__name__:
            continue
        if sys.version_info >= (3, 14):
            code = getattr(function.__annotate__, "__code__", None)
            if code is None or not set(names).intersection(code.co_names):
                continue
        yield function.__annotations__


def _import_before_look_up_fails(where: str) -> None:
    """Make a class import the family that registers operators before it reports an unknown name."""
    module, _, name = where.partition(":")
    owner = getattr(sys.modules.get(module), name, None)
    if owner is None:
        return
    stock = owner.__getattr__

    @functools.wraps(stock)
    def look_up(self: Any, name: str) -> Any:
        """Override of the class's ``__getattr__``."""
        try:
            return stock(self, name)
        except AttributeError:
            if name.startswith("__") or not import_registering():
                raise
            return stock(self, name)

    owner.__getattr__ = look_up


def _import_before_list(where: str) -> None:
    """Make a function import the family that registers operators before it lists them."""
    module, _, name = where.partition(":")
    contents = vars(sys.modules[module]) if module in sys.modules else {}
    if name in contents:
        contents[name] = _with_all(contents[name])


def _with_all(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def listing(*args: Any, **kwargs: Any) -> Any:
        import_registering()
        return stock(*args, **kwargs)

    return listing


_nodes: dict[type, Any] = {}  # by their type


def _defer_node(where: str) -> None:
    """Register a type as a node of torch's trees; its first use imports the real registration."""
    nodes, make = tree_nodes()
    module, _, name = where.partition(":")
    kind = getattr(sys.modules[module], name)

    def later(field: int) -> Callable[..., Any]:
        def work(*args: Any) -> Any:
            import_registering()
            return nodes[kind][field](*args)

        return work

    _nodes[kind] = nodes[kind] = make(kind, later(1), later(2), later(3))


def _remove_nodes() -> None:
    nodes, _ = tree_nodes()
    for kind, node in _nodes.items():
        if nodes.get(kind) is node:
            del nodes[kind]
