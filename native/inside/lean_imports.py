"""Imports torch without what eager inference never touches; each such module, when it is first touched.

``import torch`` imports 1,100 modules: 65 MB of Python heap, of which inference uses a fraction. Those of
``native/upstream/torch_imports.py`` can be *late* here: module objects that are complete but for their
contents. Whoever touches one (by an attribute, an import of what is in it, a pickle, ``inspect``) or calls
an operator that its family defines, has the whole family imported first, in torch's own order. From then
on nothing differs from a full import.

Somebody has imported torch in full before, and says what there is (``import_fully``): an interpreter of this
process or, by the note that it left in the cache (``import_notes.py``), of an earlier one. The others are
lean by what it says (``import_lean``): a module is late only if a full import has it. The process's
dispatcher has an entry for all that a full import registers with it, in either case: in the latter, the
first interpreter repeats those registrations, without the kernels.

Whoever touches a family that another thread imports waits, as for any import, by a lock of importlib's.
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
from interpool.native.upstream import torch_imports
from interpool.native.upstream.cpython_private import IMPORTLIB_FILE, ModuleLock, forget_source_lines
from interpool.native.upstream.torch_private import allow_generators, tree_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import FrameType


FULL_IMPORT = "INTERPOOL_FULL_IMPORT"
"""The environment variable that has every interpreter import torch in full: ``1``; ``0`` is the default."""


def import_torch() -> None:
    """Import torch, lean where another interpreter of this process has imported it in full.

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
    """Import torch as everybody does. Returns what ``import_lean`` is told in other interpreters."""
    import torch  # noqa: F401

    noted: dict[str, _Noted] = {}
    for name, module in sys.modules.items():
        if _is_torchs(name) and isinstance(getattr(module, "__loader__", None), SourceFileLoader):
            parent, _, last = name.rpartition(".")
            bound = vars(sys.modules[parent]).get(last) is module if parent else True
            noted[name] = _Noted(str(module.__file__), hasattr(module, "__path__"), bound)
    others = [name for name in sys.modules if "." not in name]
    registered = _interpool.noted_registrations()
    constants = {
        module: {name: sorted(found[name]) for name in names if name in (found := vars(sys.modules[module]))}
        for module, names in torch_imports.CONSTANTS.items()
        if module in sys.modules
    }
    told = {"torch": noted, "others": others, "registered": registered, "constants": constants}
    return json.dumps(told)


def import_lean(note: str, *, first: bool = False) -> None:
    """Import torch, and of ``torch_imports.FAMILIES`` what is touched meanwhile.

    Args:
        note: what ``import_fully`` returned in another interpreter.
        first: whether that was in another process, and this one may have nothing registered yet.
    """
    global _starting
    told = json.loads(note)
    noted = {name: _Noted(*fields) for name, fields in told["torch"].items()}
    _others.update(told["others"])
    for module, constants in told["constants"].items():
        _objects.setdefault(module, {}).update({name: frozenset(some) for name, some in constants.items()})
    finder = _Finder(noted, told["registered"] if first else "")
    sys.meta_path.insert(0, finder)
    _starting = True
    try:
        import torch  # noqa: F401

        finder.torch_is_there = True
        for name, each in noted.items():
            _have(name, each.bound)  # in order: parents come first
    finally:
        _starting = False
        sys.meta_path.remove(finder)
    for importer, names in torch_imports.LATER_NAMES.items():
        if importer in sys.modules:
            _leave_out(sys.modules[importer], names)
    for where in torch_imports.LOOK_UPS:
        _import_before_look_up_fails(where)
    for where in torch_imports.LISTS:
        _import_before_list(where)
    for where in torch_imports.TREE_NODES:
        _hold_node(where)
    allow_generators()
    _interpool.register_late(True)
    _complete()


def import_registering() -> bool:
    """Import what registers with torch's dispatcher. Returns whether that brought anything.

    C++ calls this, where torch has no kernel that another interpreter's Python has registered.
    """
    family = _families.get(torch_imports.REGISTERING)
    return family is not None and not _starting and family.import_all()


def known_names() -> set[str]:
    """Top-level modules that a full import has, whether or not they were imported here."""
    return _others


def is_late(module: ModuleType) -> bool:
    """Whether its contents were not imported yet."""
    return type(module) is _Late


def late_modules() -> int:
    """How many modules have no contents yet. By no built-in function, as a model may have removed it."""
    count = 0
    for family in _families.values():
        count += family.late.__len__()
    return count


class _Noted(NamedTuple):
    """A module of a full import: its source's file, whether it has submodules, is its parent's attribute."""

    file: str
    package: bool
    bound: bool


class _Family:
    """What is late of one family, in the order in which a full import has it."""

    def __init__(self, name: str) -> None:
        self._lock = f"interpool's torch family {name}"
        self._thread = 0  # that imports it
        self._done = False
        self.begun = False  # to be imported
        self.late: dict[str, ModuleType] = {}
        self._under_way: set[str] = set()  # those whose contents are being imported

    def meet_import(self, name: str) -> None:
        """Have an import by the thread that imports the family find it as if for the first time."""
        if self._thread == get_ident():
            self._import(name)

    def touch(self, name: str) -> None:
        """Import the module's contents, and all the family's; amid another such import, its own only."""
        if _starting or self._thread == get_ident():
            self._import(name)
        elif any(family._thread == get_ident() for family in _families.values()):
            self._import_alone(name)
        else:
            self.import_all()

    def _import_alone(self, name: str) -> None:
        """Import one module, amid another family's import: not beside a thread that imports this family."""
        lock = self._locked()
        if lock is None:
            return
        try:
            self._import(name)
        finally:
            lock.__exit__(None, None, None)

    def _locked(self) -> Any:
        """The family's lock, taken; None amid a circle.

        Another thread imports the family then, and waits for what this one is importing: as in any such
        circle, this one goes on with what is there.
        """
        lock = ModuleLock(self._lock)
        try:
            lock.__enter__()
        except RuntimeError:
            return None
        return lock

    def import_all(self) -> bool:
        """Import all of it. Returns whether there was anything to import, by this thread or another."""
        if self._done or self._thread == get_ident():
            return False
        lock = self._locked()
        if lock is None:
            return False
        try:
            if not self._done:
                self._thread = get_ident()
                # Not in the caller's modes: its default device, say, is not that of torch's own constants.
                _interpool.call_fresh(self._import_late)
                self._done = True
                if self is _families[torch_imports.REGISTERING]:
                    _interpool.register_late(False)
        finally:
            self._thread = 0
            lock.__exit__(None, None, None)
        _complete()
        return True

    def _import_late(self) -> None:
        if self is _families[torch_imports.REGISTERING]:
            _let_nodes_go()
        names = tuple(self.late)
        try:
            for name in names:
                self._import(name)
        finally:
            for name in self.late.keys() & _bound:  # one of them failed
                _bind(name, self.late[name])

    def _import(self, name: str) -> None:
        if name not in self.late or name in self._under_way:
            return
        parent = name.rpartition(".")[0]
        if parent in _family:
            _family[parent].touch(parent)
        if name not in self.late or name in self._under_way:  # its parent has imported it
            return
        self.begun = True
        module = self.late[name]
        contents = _contents(module)
        before = contents.copy()
        # Its own imports make its submodules attributes, when they import them.
        for each in [each for each, value in before.items() if isinstance(value, _Late)]:
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
        del self.late[name]
        contents.update(_objects.get(name, {}))
        if type(module) is _Late:  # it may have made itself something else
            module.__class__ = ModuleType  # type: ignore[assignment]
        if name in _bound or (parent in _family and parent in _family[parent]._under_way):
            _bind(name, module)
        for importer, names in torch_imports.LATER_NAMES.items():
            if name in names and importer in sys.modules:
                _give(sys.modules[importer], contents, names[name])


_families: dict[str, _Family] = {name: _Family(name) for name in torch_imports.FAMILIES}
_family: dict[str, _Family] = {}  # by module, of those that are or were late
_bound: set[str] = set()  # modules that a full import leaves in their parents, as an import puts them there
_starting = False  # while torch itself is imported
_others: set[str] = set()
_objects = {
    name: {each: make() for each, make in makers.items()}
    for name, makers in torch_imports.OBJECTS_BEFORE.items()
}

_contents: Callable[[ModuleType], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__
# What Python's imports, reloads and tracebacks ask of a module: true of a late one already.
_KNOWN = frozenset(
    {"__cached__", "__class__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}
)


class _Late(ModuleType):
    """A module whose contents were not imported yet."""

    def __getattribute__(self, name: str) -> Any:
        contents = _contents(self)
        own = contents["__name__"]
        if name in _KNOWN or name == "__reduce_ex__":
            if name == "__spec__":  # import statements ask for it
                _family[own].meet_import(own)
            return ModuleType.__getattribute__(self, name)
        if f"{own}.{name}" in _bound and name in contents:
            return contents[name]  # a submodule
        if name in _objects.get(own, ()):
            return _objects[own][name]
        later = _later(own, name)
        if later is not None:
            return later
        _family[own].touch(own)
        return ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        own = _contents(self)["__name__"]
        imported = isinstance(value, ModuleType) and sys.modules.get(f"{own}.{name}") is value
        if not imported:
            _family[own].touch(own)
        ModuleType.__setattr__(self, name, value)  # its class may be another one now

    def __delattr__(self, name: str) -> None:
        own = _contents(self)["__name__"]
        _family[own].touch(own)
        ModuleType.__delattr__(self, name)

    def __reduce_ex__(self, _protocol: object) -> tuple[Any, ...]:
        # Picklers that know how to take a module look for its exact type, and would not find it.
        return importlib.import_module, (self.__name__,)


class _Finder:
    """Finds the modules of families, while torch is imported, and has them be late."""

    def __init__(self, noted: dict[str, _Noted], registered: str) -> None:
        self._noted = noted
        self._registered = registered  # what is to be repeated, before any Python registers more
        self.torch_is_there = False

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if self._registered and "torch._C" in sys.modules:
            registered, self._registered = self._registered, ""
            _interpool.repeat_registrations(registered)
        # Decorators of torch's read whole files. What follows takes the place of their lines.
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
            family = torch_imports.REGISTERING  # nobody but a family's modules has imported it
        if family == "":
            return None
        spec.loader = _LateLoader(spec.loader, _families[family])
        return spec


class _LateLoader(Loader):
    """Stands in for a module's loader until the module is there, without contents."""

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
        self._of.late[name] = module
        module.__class__ = _Late


def _complete() -> None:
    """Import what is left of families of which something was imported, once that import is over."""
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
    """The family that a module belongs to; "" for none."""
    for family, roots in torch_imports.FAMILIES.items():
        if any(name == root or name.startswith(root + ".") for root in roots):
            return family
    return ""


def _have(name: str, bound: bool) -> None:
    """Have a module in ``sys.modules``, late or not."""
    parent, _, last = name.rpartition(".")
    if not parent:
        importlib.import_module(name)
        return
    above = importlib.import_module(parent)
    before = _contents(above).get(last)
    module = importlib.import_module(name)
    if bound:
        _bound.add(name)
        if not is_late(above):
            _bind(name, module)  # late submodules are lost where contents are imported amid this import
    elif not is_late(above) and before is not None and before is not module:
        _contents(above)[last] = before


# ---- names that other modules take from late ones --------------------------------------------------------


class _Later:
    """Stands for what a name means in a late module, for who keeps it or asks for an object's class."""

    def __init__(self, module: str, name: str, others: tuple[Any, ...] = ()) -> None:
        self._module = module
        self._name = name
        self._others = others

    def there(self) -> Any:
        """The thing itself, in an annotation joined with others."""
        found = getattr(importlib.import_module(self._module), self._name)
        for other in self._others:
            found = found | other
        return found

    def __or__(self, other: object) -> _Later:
        return _Later(self._module, self._name, (*self._others, other))

    def __instancecheck__(self, instance: object) -> bool:
        module = sys.modules.get(self._module)
        return module is not None and not is_late(module) and isinstance(instance, self.there())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        asked = torch_imports.QUESTIONS.get((self._module, self._name))
        if asked is not None and is_late(sys.modules[self._module]) and not _ask(asked, *args, **kwargs):
            return False
        return self.there()(*args, **kwargs)


def _ask(where: str, tensor: object) -> bool:
    """What a function of C++'s says of an object; of none but a tensor it says anything."""
    module, _, name = where.partition(":")
    contents = vars(sys.modules[module])
    return isinstance(tensor, contents["TensorBase"]) and bool(contents[name](tensor))


_Asked = tuple[str, str]  # a late module, and a name in it
_ASKERS: dict[_Asked, set[_Asked]] = {}  # and who gets something else: modules, and functions in them
for _importer, _names in torch_imports.LATER_NAMES.items():
    for _module, _some in _names.items():
        for _one in _some:
            _ASKERS.setdefault((_module, _one), set()).add((_importer, "<module>"))
for _where, _names in torch_imports.CLASS_CHECKS.items():
    for _module, _some in _names.items():
        for _one in _some:
            _ASKERS.setdefault((_module, _one), set()).add(_where)


def _later(module: str, name: str) -> _Later | None:
    """What an importer gets that can do with less than the thing itself."""
    askers = _ASKERS.get((module, name))
    if askers is None:
        return None
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == IMPORTLIB_FILE:
        frame = frame.f_back
    asker = (frame.f_globals.get("__name__", ""), frame.f_code.co_name) if frame is not None else ("", "")
    return _Later(module, name) if asker in askers else None


def _leave_out(importer: ModuleType, names: dict[str, tuple[str, ...]]) -> None:
    """Have the names that it took from late modules be no attributes, until somebody asks for them."""
    contents = vars(importer)
    sources = {
        name: module
        for module, some in names.items()
        for name in some
        if isinstance(contents.get(name), _Later)
    }
    stock = contents.get("__getattr__")
    if sys.version_info >= (3, 14):
        list(_annotations(importer, sources))  # evaluated as long as the names are there
    for name in sources:
        del contents[name]

    def bring(name: str) -> Any:
        """Stands in for the module's ``__getattr__``."""
        if name in sources:
            _family[sources[name]].touch(sources[name])
            if name in contents:
                return contents[name]
        if stock is not None:
            return stock(name)
        raise AttributeError(f"module {importer.__name__!r} has no attribute {name!r}")

    def list_all() -> list[str]:
        """Stands in for the module's ``__dir__``."""
        for name in sources:
            getattr(importer, name)
        return sorted(contents)

    if sources:
        contents["__getattr__"] = bring
        contents.setdefault("__dir__", list_all)
        _stock_of[importer.__name__] = (stock, list_all, tuple(sources))


_stock_of: dict[str, tuple[Any, Any, tuple[str, ...]]] = {}


def _give(importer: ModuleType, source: dict[str, Any], names: tuple[str, ...]) -> None:
    """Give an importer the names that it took from a module which was late then."""
    contents = vars(importer)
    stock, listing, left_out = _stock_of.get(importer.__name__, (None, None, ()))
    for name in names:
        if isinstance(contents.get(name), _Later) or (name in left_out and name not in contents):
            contents[name] = source[name]
    for noted in _annotations(importer, names):
        for name, annotation in noted.items():
            if isinstance(annotation, _Later):
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
    """Of a module's functions; from 3.14 on, where asking evaluates them, if they use one of the names."""
    for function in vars(module).copy().values():
        if not isinstance(function, FunctionType) or function.__module__ != module.__name__:
            continue
        if sys.version_info >= (3, 14):
            code = getattr(function.__annotate__, "__code__", None)
            if code is None or not set(names).intersection(code.co_names):
                continue
        yield function.__annotations__


def _import_before_look_up_fails(where: str) -> None:
    """Have a class import what registers operators before it says that it knows none of a name."""
    module, _, name = where.partition(":")
    owner = getattr(sys.modules.get(module), name, None)
    if owner is None:
        return
    stock = owner.__getattr__

    @functools.wraps(stock)
    def look_up(self: Any, name: str) -> Any:
        """Stands in for the class's ``__getattr__``."""
        try:
            return stock(self, name)
        except AttributeError:
            if name.startswith("__") or not import_registering():
                raise
            return stock(self, name)

    owner.__getattr__ = look_up


def _import_before_list(where: str) -> None:
    """Have a function import what adds to its answer."""
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


_nodes: dict[type, Any] = {}  # by what they are nodes of trees of torch's


def _hold_node(where: str) -> None:
    """Have a type be a node in trees of torch's, which imports what makes it one."""
    nodes, make = tree_nodes()
    module, _, name = where.partition(":")
    kind = getattr(sys.modules[module], name)

    def later(field: int) -> Callable[..., Any]:
        def work(*args: Any) -> Any:
            import_registering()
            return nodes[kind][field](*args)

        return work

    _nodes[kind] = nodes[kind] = make(kind, later(1), later(2), later(3))


def _let_nodes_go() -> None:
    nodes, _ = tree_nodes()
    for kind, node in _nodes.items():
        if nodes.get(kind) is node:
            del nodes[kind]
