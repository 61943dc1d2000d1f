"""torch's private names that interpool uses: the only place to update for torch's next release.

Private names are those that torch does not document: names with an underscore, internals of torch.package,
and the contents of its pickles. Importing this module does not import torch; reading one of torch's names
does. Mangled names and layouts for C++ code are in ``native/cpp/upstream``.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import operator
import sys
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from interpool.native.upstream.private_names import PrivateName, problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType
    from typing import Self

    import torch
    from torch.package import _package_unpickler, glob_group, package_exporter, package_importer

    # For type checkers: the results of __getattr__ below.
    ExternNode = package_importer._ExternNode
    GlobGroup = glob_group.GlobGroup
    ModuleNode = package_importer._ModuleNode
    PackageNode = package_importer._PackageNode
    PackageUnpickler = _package_unpickler.PackageUnpickler
    PackagingErrorReason = package_exporter.PackagingErrorReason
    PyTorchFileReader = torch._C.PyTorchFileReader
    package_imported_modules = package_importer._package_imported_modules

# ---- torch.package ------------------------------------------------------------------------------------

MANGLED = "<torch_package_"
"""Prefix of the names of an archive's modules, also in tracebacks; a number and ``>.`` follow."""

FROM_PACKAGE = "__torch_package__"
"""A global of every module that was imported from an archive."""


def plain_name(name: str) -> str:
    """Return a name without the prefix of an archive, as its author wrote it."""
    start, _, end = name.partition(MANGLED)
    return start + end.partition(">.")[2] if end else name


OWN_MODULES = ("torch_package_importer", "_mock")
"""Modules that torch.package adds to archives and treats specially; the first represents the reader."""

IMPLICIT_EXTERNS = ("numpy", "numpy.core", "numpy.core._multiarray_umath", "builtins")
"""torch.package always imports these from the server."""

_MOCK_FILE = f"{OWN_MODULES[1]}.py"
"""The member of an archive that contains the code of mocks."""

_MOCKED = "_name"
"""The attribute of a mock, or of a class derived from one, with the mocked object's name."""

REDUCED = "reduce_package"
"""The first part of a pickle's reference to an object that packs itself."""

REDUCE_PACKAGE = "__reduce_package__"
"""The method of a class whose objects pack themselves."""

_EXPORTER = "torch.package.package_exporter"
_IMPORTER = "torch.package.package_importer"

_PACKAGE_NAMES = (
    PrivateName("torch.package.glob_group:GlobGroup", "packing/decide/rules.py: the user's patterns"),
    PrivateName(
        "torch.package.glob_group:GlobGroup.matches", "packing/decide/rules.py", ("self", "candidate")
    ),
    # Writing.
    PrivateName(
        f"{_EXPORTER}:_gate_torchscript_serialization", "packing/write/building.py packs TorchScript modules"
    ),
    PrivateName(
        f"{_EXPORTER}:PackageExporter.__init__",
        "packing/write/exporter.py and packing/write/explain.py: the graph of modules",
        mentions=("dependency_graph",),
    ),
    PrivateName(
        f"{_EXPORTER}:PackageExporter.add_dependency",
        "packing/write/exporter.py decides in its place",
        ("self", "module_name", "dependencies"),
        mentions=OWN_MODULES,
    ),
    PrivateName(
        f"{_EXPORTER}:PackageExporter._get_source_of_module",
        "packing/write/exporter.py: sources as UTF-8",
        ("self", "module"),
    ),
    PrivateName(
        f"{_EXPORTER}:PackageExporter._intern_module",
        "packing/write/exporter.py and packing/write/explain.py: what it notes of a module",
        mentions=("_get_source_of_module", "is_package", "source", "error"),
    ),
    PrivateName(
        f"{_EXPORTER}:PackageExporter._persistent_id",
        "packing/write/exporter.py numbers what packs itself",
        ("self", "obj"),
        mentions=(REDUCED, REDUCE_PACKAGE, "storage"),
    ),
    PrivateName(
        f"{_EXPORTER}:PackageExporter._write",
        "packing/write/exporter.py: members by their path",
        ("self", "filename", "str_or_bytes"),
    ),
    PrivateName(
        f"{_EXPORTER}:PackageExporter._finalize_zip",
        "packing/write/exporter.py writes the zip's end before",
        ("self",),
        mentions=("zip_file",),
    ),
    PrivateName(
        f"{_EXPORTER}:PackageExporter._get_dependencies",
        "packing/write/building.py: the module that was scanned, from the frame",
        mentions=("module_name",),
    ),
    PrivateName(
        f"{_EXPORTER}:PackageExporter._import_module",
        "packing/write/building.py: the module that was imported, from the frame",
        mentions=("module_name",),
    ),
    PrivateName(f"{_EXPORTER}:PackageExporter.get_rdeps", "packing/write/explain.py: who imports a module"),
    *(
        PrivateName(f"{_EXPORTER}:{name}", "packing/write/explain.py: why torch.package refused a module")
        for name in (
            "PackagingErrorReason",
            "PackagingErrorReason.DENIED",
            "PackagingErrorReason.DEPENDENCY_RESOLUTION_FAILED",
            "PackagingErrorReason.IS_EXTENSION_MODULE",
            "PackagingErrorReason.MOCKED_BUT_STILL_USED",
            "PackagingErrorReason.NO_DUNDER_FILE",
            "PackagingErrorReason.SOURCE_FILE_NOT_FOUND",
        )
    ),
    PrivateName(
        "torch.package._digraph:DiGraph.add_node",
        "packing/write/exporter.py: modules that are denied",
        ("self", "n", "kwargs"),
    ),
    PrivateName(
        "torch.package._digraph:DiGraph.add_edge",
        "packing/write/exporter.py: parents, and import_module",
        ("self", "u", "v"),
    ),
    PrivateName(
        "torch.package._digraph:DiGraph.nodes", "packing/write/explain.py: what was noted of each module"
    ),
    PrivateName(
        f"{_EXPORTER}:PackageExporter._write_mock_file",
        "packing/prove/trial_load.py: whether a mock raised the error",
        mentions=(_MOCK_FILE,),
    ),
    PrivateName(
        "torch.package._mock:MockedObject.__new__",
        "packing/prove/trial_load.py: what was mocked, from the frame",
        ("cls", "args", "kwargs"),
        mentions=(_MOCKED,),
    ),
    PrivateName(
        "torch.package._mock:install_method",
        "packing/prove/trial_load.py: what was mocked, from the frame",
        mentions=("self", _MOCKED),
    ),
    # Reading.
    PrivateName(
        f"{_IMPORTER}:PackageImporter.__init__",
        "archive/importer.py and archive/unpickler.py",
        mentions=(
            "_mangler",
            "extern_modules",
            "filename",
            "get_all_records",
            "modules",
            "patched_builtins",
            "root",
            "serialization_id",
            "storage_context",
            "Unpickler",
            "zip_reader",
            OWN_MODULES[0],
        ),
    ),
    PrivateName(
        f"{_IMPORTER}:PackageImporter._make_module",
        "archive/importer.py: it calls _install_on_parent before the module's code runs",
        mentions=("_install_on_parent", FROM_PACKAGE, "__loader__"),
    ),
    PrivateName(
        f"{_IMPORTER}:PackageImporter._install_on_parent",
        "archive/importer.py registers the module with Python",
        ("self", "parent", "name", "module"),
    ),
    PrivateName(
        f"{_IMPORTER}:PackageImporter._load_module",
        "archive/importer.py forgets a module whose code raised",
        ("self", "name", "parent"),
    ),
    PrivateName(
        f"{_IMPORTER}:PackageImporter._find_and_load",
        "archive/importer.py: two threads, one import",
        ("self", "name"),
    ),
    PrivateName(
        f"{_IMPORTER}:PackageImporter._gcd_import",
        "archive/importer.py: modules that ask for their own name",
        ("self", "name", "package", "level"),
    ),
    PrivateName(
        f"{_IMPORTER}:PackageImporter.__import__",
        "archive/importer.py: C code that imports",
        ("self", "name", "globals", "locals", "fromlist", "level"),
    ),
    PrivateName(
        f"{_IMPORTER}:PackageImporter._add_file",
        "archive/importer.py: folders of data files",
        ("self", "filename"),
    ),
    PrivateName(
        f"{_IMPORTER}:PackageImporter.load_pickle",
        "archive/unpickler.py checks the references of pickles; inside/packages.py maps weights",
        mentions=("storage", REDUCED, "get_storage_from_record", "storage_context", "Unpickler"),
    ),
    PrivateName(f"{_IMPORTER}:_ExternNode", "archive/importer.py: the tree of an archive's modules"),
    PrivateName(f"{_IMPORTER}:_ModuleNode", "archive/importer.py: the same"),
    PrivateName(f"{_IMPORTER}:_ModuleNode.source_file", "archive/importer.py: the member with its source"),
    PrivateName(f"{_IMPORTER}:_PackageNode", "archive/importer.py: the same"),
    PrivateName(
        f"{_IMPORTER}:_PackageNode.__init__",
        "archive/importer.py",
        ("self", "source_file"),
        mentions=("children",),
    ),
    PrivateName(f"{_IMPORTER}:_package_imported_modules", "archive/importer.py forgets a module"),
    PrivateName(
        f"{_IMPORTER}:IMPLICIT_IMPORT_ALLOWLIST",
        "archive/pickle_names.py: what is never taken from the archive",
        value=[*IMPLICIT_EXTERNS],
    ),
    PrivateName(
        "torch.package._mangling:PackageMangler.__init__",
        "what an archive's modules are called",
        mentions=(MANGLED,),
    ),
    PrivateName("torch.package._mangling:PackageMangler.mangle", "archive/importer.py", ("self", "name")),
    PrivateName(
        "torch.package._mangling:PackageMangler.demangle", "archive/importer.py", ("self", "mangled")
    ),
    PrivateName("torch.package._mangling:PackageMangler.parent_name", "archive/importer.py", ("self",)),
    PrivateName("torch.package._package_unpickler:PackageUnpickler", "archive/unpickler.py checks each step"),
    PrivateName(
        "torch.package._package_unpickler:PackageUnpickler.__init__",
        "archive/unpickler.py",
        ("self", "importer", "args", "kwargs"),
    ),
)

# ---- torch._C and what goes through it ----------------------------------------------------------------

INDUCTOR_ADDRESS = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
"""Environment variable with the address of a function of libtorch_python, for TorchInductor's libraries."""

_GRADIENT_WORDS = ("does not have a grad_fn", "inference tensor", "inferencemode")
"""Words, in any case, of torch's errors about differentiation in inference mode."""

_UNWRITTEN_WORDS = ("iostream error", "PytorchStreamWriter failed", "unexpected pos")
"""Words of torch's errors about a file that cannot be written further."""

_GENERATORS_METACLASS = PrivateName(
    "torch._custom_class_base:CustomClassBaseMeta",
    "inside/lean_imports.py: the argument of that call",
    before="torch._opaque_base:OpaqueBaseMeta",  # until 2.14
)
_CORE_NAMES = (
    PrivateName("torch._C:_set_generator_metaclass", "inside/lean_imports.py: a deferred module calls it"),
    _GENERATORS_METACLASS,
    PrivateName("torch.utils._pytree:SUPPORTED_NODES", "inside/lean_imports.py: node types of a tree"),
    PrivateName(
        "torch.utils._pytree:NodeDef",
        "inside/lean_imports.py",
        ("type", "flatten_fn", "unflatten_fn", "flatten_with_keys_fn"),
    ),
    PrivateName(
        "torch._C:PyTorchFileWriter.write_end_of_file", "packing/write/exporter.py writes the zip's end"
    ),
    PrivateName("torch._C:PyTorchFileReader", "inside/packages.py reads in its place"),
    *(
        PrivateName(f"torch._C:PyTorchFileReader.{name}", "inside/packages.py: weights are mapped, not read")
        for name in ("get_all_records", "get_record", "get_storage_from_record", "has_record")
    ),
    PrivateName(
        "torch._C:DeserializationStorageContext.add_storage", "archive/importer.py: TorchScript's weights"
    ),
    PrivateName("torch:UntypedStorage._cdata", "the address of a storage, for inside/weights.py"),
    PrivateName(
        "torch.jit:RecursiveScriptModule.__init__", "script_tensors", ("self", "cpp_module"), mentions=("_c",)
    ),
    *(
        PrivateName(f"torch._C:{name}", "script_tensors")
        for name in (
            "ScriptModule._get_method",
            "ScriptModule._method_names",
            "ScriptModule._type",
            "ScriptModule.getattr",
            "ScriptModule.hasattr",
            "ScriptMethod.graph",
            "ScriptMethod.inlined_graph",
            "Graph.findAllNodes",
            "Node.attributeNames",
            "Node.kindOf",
            "Node.ival",
            "Node.s",
            "Node.t",
            "Node.ts",
        )
    ),
    *(
        PrivateName(f"{module}:{name}", "inside/process_guards.py overrides it")
        for module in ("torch", "torch._C")
        for name in ("set_anomaly_enabled", "is_anomaly_enabled")
    ),
    *(
        PrivateName(f"torch.library:{name}", "inside/operators.py: unregisters a model's libraries with it")
        for name in ("Library._destroy", "_keep_alive")
    ),
    PrivateName(
        "torch.library:Library.__init__",
        "inside/operators.py: the operators of a library",
        mentions=("_op_defs", "ns"),
    ),
    PrivateName("torch._library.custom_ops:OPDEF_TO_LIB", "inside/operators.py: the same"),
    PrivateName(
        "torch._weights_only_unpickler:_marked_safe_globals_set",
        "handler/backend/own_changes.py: what a model lets torch.load make",
    ),
    PrivateName(
        "torch.utils._pytree:SERIALIZED_TYPE_TO_PYTHON_TYPE",
        "handler/backend/own_changes.py: a model's classes that files of torch.export name",
    ),
    *(
        PrivateName(f"torch.backends{where}", "handler/backend/process_view.py: each model's settings")
        for where in (
            ":m.__allow_nonbracketed_mutation_flag",
            ".mha:_is_fastpath_enabled",
            ".opt_einsum:enabled",
            ".opt_einsum:strategy",
            ".opt_einsum:m",
        )
    ),
    *(
        PrivateName(where, "handler/backend/own_changes.py: what TorchScript compiles is a model's own")
        for where in (
            "torch._C:CompilationUnit",
            "torch.jit._recursive:_python_cu",
            "torch.jit._recursive:ConcreteTypeStore",
            "torch.jit._recursive:concrete_type_store",
            "torch.jit._state:_jit_caching_layer",
            "torch.jit._state:_jit_function_overload_caching",
            "torch.jit._state:_name_to_pyclass",
            "torch.jit._state:_python_cu",
            "torch.jit._state:_script_classes",
        )
    ),
    PrivateName("torch._inductor.codecache", "inside/inductor.py", mentions=(INDUCTOR_ADDRESS, "os.environ")),
    PrivateName(
        "torch._dynamo.eval_frame",
        "compiled_modules_as_plain",
        mentions=("class OptimizedModule", "_orig_mod"),
    ),
    PrivateName(
        "torch.storage", "use_up_storage_warning", mentions=("TypedStorage is deprecated", "has_warned")
    ),
)

# ---- contents of torch's pickles ----------------------------------------------------------------------

REBUILDERS = "torch._utils"
"""The module of the functions by which a pickle creates tensors and parameters."""

REBUILD_TENSOR = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor")
"""The functions for tensors. Their first arguments are a storage, an offset, the sizes and the strides."""

REBUILD_PARAMETER = ("_rebuild_parameter", "_rebuild_parameter_with_state")
"""The functions for parameters. Their first argument is the tensor."""

REBUILD_WITH_TYPE = ("torch._tensor", "_rebuild_from_type_v2")
"""For tensors with attributes, or of a subclass. Its arguments are another function, a class, and others."""

DTYPE_ARGUMENT = {"_rebuild_tensor_v3": 6}
"""Position of the dtype argument; other functions use the storage's dtype."""

MODULE_ATTRIBUTES = ("_parameters", "_buffers", "_modules")
"""The tables in which a module looks for attributes that it lacks itself."""

QUANTIZED_LAYERS = "torch.ao.nn."
"""Prefix of the modules of quantized layers."""

_TENSOR_ARGUMENTS = ("storage", "storage_offset", "size", "stride")
_GRADIENT_ARGUMENTS = ("requires_grad", "backward_hooks")

_PICKLE_NAMES = (
    PrivateName(
        "torch.nn.modules.module:Module.__getattr__",
        "upstream/module_names.py",
        mentions=MODULE_ATTRIBUTES,
    ),
    PrivateName("torch.nn.modules.module:Module.__setstate__", "movable.py", ("self", "state")),
    PrivateName("torch._utils:_rebuild_tensor", "tensors in pickles", _TENSOR_ARGUMENTS),
    PrivateName(
        "torch._utils:_rebuild_tensor_v2",
        "tensors in pickles",
        (*_TENSOR_ARGUMENTS, *_GRADIENT_ARGUMENTS, "metadata"),
    ),
    PrivateName(
        "torch._utils:_rebuild_tensor_v3",
        "tensors in pickles",
        (*_TENSOR_ARGUMENTS, *_GRADIENT_ARGUMENTS, "dtype", "metadata"),
    ),
    PrivateName(
        "torch._utils:_rebuild_qtensor",
        "quantized tensors in pickles",
        (*_TENSOR_ARGUMENTS, "quantizer_params", *_GRADIENT_ARGUMENTS),
    ),
    PrivateName("torch._utils:_rebuild_parameter", "parameters in pickles", ("data", *_GRADIENT_ARGUMENTS)),
    PrivateName(
        "torch._utils:_rebuild_parameter_with_state",
        "parameters in pickles",
        ("data", *_GRADIENT_ARGUMENTS, "state"),
    ),
    PrivateName(
        "torch._tensor:_rebuild_from_type_v2",
        "tensors with attributes in pickles",
        ("func", "new_type", "args", "state"),
    ),
)

NAMES = _PACKAGE_NAMES + _CORE_NAMES + _PICKLE_NAMES
"""All private names."""


def check() -> list[str]:
    """Return missing or changed private names of this torch. Imports torch.

    Raises:
        ImportError: torch cannot be imported.
    """
    import torch  # noqa: F401

    return problems(NAMES)


def wants_gradients(error: BaseException) -> bool:
    """Return whether torch raised this error because of differentiation in inference mode."""
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in said for words in _GRADIENT_WORDS)


def found_no_room(error: BaseException) -> bool:
    """Return whether torch raised this error because an archive cannot be written, as on a full disk."""
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _UNWRITTEN_WORDS)


def use_up_storage_warning() -> None:
    """Have torch warn of typed storages now, unseen, because it does so only once.

    torch.package causes this warning, and the user's code may turn warnings into errors.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.empty(0).storage()


def allow_torchscript() -> None:
    """Allow torch.package to pack TorchScript modules, which it refuses by default."""
    from torch.package import package_exporter

    package_exporter._gate_torchscript_serialization = False


@contextlib.contextmanager
def compiled_modules_as_plain(met: Callable[[], None]) -> Iterator[None]:
    """Pickle the original modules in place of results of ``torch.compile``, during the block.

    Args:
        met: called for each such module that is pickled.
    """
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is None:  # nothing was compiled
        yield
        return

    def reduce(compiled: Any) -> tuple[Callable[..., Any], tuple[list[Any], int]]:
        met()
        return operator.getitem, ([compiled._orig_mod], 0)

    with _pickled_by(dynamo.OptimizedModule, reduce):
        yield


@contextlib.contextmanager
def fx_graphs_without_owners() -> Iterator[None]:
    """Pickle FX graphs without the module that they belong to, during the block.

    A module may keep several, as torchvision's feature extractors do. torch.package cannot load a module that
    contains itself, and the module owns the graph that it switches to. Without torch's private attribute this
    changes nothing.
    """
    graph = vars(sys.modules.get("torch.fx.graph", object)).get("Graph")
    if graph is None or graph in copyreg.dispatch_table:
        yield
        return

    def reduce(one: Any) -> tuple[Callable[..., Any], tuple[type], dict[str, Any]]:
        return copyreg.__newobj__, (type(one),), {**vars(one), "_owning_module": None}  # type: ignore[attr-defined]

    with _pickled_by(graph, reduce):
        yield


@contextlib.contextmanager
def _pickled_by(kind: type[Any], reduce: Callable[[Any], tuple[Any, ...]]) -> Iterator[None]:
    """Pickle the objects of a class by a function, during the block."""
    copyreg.pickle(kind, reduce)
    try:
        yield
    finally:
        del copyreg.dispatch_table[kind]


def forget_fx_code() -> None:
    """Remove the code of the latest FX module from torch's class that reads it, and has no other use for it.

    It belongs to a model, and would seem to replace what other models use. A release without that class needs
    no such step.
    """
    reader = vars(sys.modules.get("torch.fx.graph_module", object)).get("_CodeOnlyModule", object)
    if "forward" in vars(reader):
        del reader.forward


def mocked_in(frame: FrameType, member: str) -> str:
    """Return the name of the mocked object if this frame belongs to a mock; otherwise "".

    Args:
        frame: the frame.
        member: the file of the frame's code, by its name in the archive.
    """
    if member != _MOCK_FILE:
        return ""
    # A method of a mock, or __new__ of a class derived from one.
    stand_in = frame.f_locals.get("self", frame.f_locals.get("cls"))
    return str(getattr(stand_in, _MOCKED, ""))


def replace_anomaly_mode(
    set_anomaly_enabled: Callable[..., None], is_anomaly_enabled: Callable[[], bool]
) -> None:
    """Replace torch's functions that set and read autograd's anomaly mode.

    Args:
        set_anomaly_enabled: replaces the function that sets it.
        is_anomaly_enabled: replaces the function that reads it.
    """
    import torch

    modules: tuple[Any, ...] = (torch, torch._C)
    for module in modules:
        module.set_anomaly_enabled = set_anomaly_enabled
        module.is_anomaly_enabled = is_anomaly_enabled


def allow_generators() -> None:
    """Set the metaclass of ``torch.Generator`` as a deferred module does; otherwise none can be created.

    Calling it twice is harmless.
    """
    import torch

    torch._C._set_generator_metaclass(_GENERATORS_METACLASS.resolve())


def tree_nodes() -> tuple[dict[type, Any], Callable[..., Any]]:
    """Return the registry of node types of torch's trees, and the class of its entries."""
    from torch.utils import _pytree

    return _pytree.SUPPORTED_NODES, _pytree.NodeDef


def allow_import_again() -> None:
    """Allow another import of torch after one that failed before ``torch._C`` was loaded.

    Since 2.15, torch refuses this because of C++ code that has run; none has run by then. Its imported
    submodules are removed, because they would not become attributes of the next ``torch``.
    """
    vars(sys).pop("_torch_import_started", None)
    for name in [name for name in sys.modules if name.startswith("torch.")]:
        del sys.modules[name]


def operators_of(library: torch.library.Library) -> set[str]:
    """Return the library's operators: ``namespace::name``, or ``namespace::name.overload``."""
    return getattr(library, "_op_defs", set())  # none if __init__ raised


def forget_libraries(libraries: Sequence[torch.library.Library]) -> None:
    """Unregister the libraries' operators and kernels, and release the libraries."""
    import torch
    from torch._library import custom_ops

    for library in libraries:
        if getattr(library, "m", None) is not None:
            library._destroy()
    gone = {id(library) for library in libraries}
    torch.library._keep_alive[:] = [each for each in torch.library._keep_alive if id(each) not in gone]
    for name in [name for name, each in custom_ops.OPDEF_TO_LIB.items() if id(each) in gone]:
        del custom_ops.OPDEF_TO_LIB[name]


def safe_globals() -> frozenset[Any]:
    """Return the globals added by ``add_safe_globals``, without the import of torch's compiler.

    ``torch.serialization.get_safe_globals`` would import the compiler.
    """
    from torch import _weights_only_unpickler

    return frozenset(_weights_only_unpickler._marked_safe_globals_set)


def replace_safe_globals(allowed: frozenset[Any]) -> None:
    """Replace the globals that ``add_safe_globals`` has allowed ``torch.load`` to create."""
    from torch import _weights_only_unpickler

    _weights_only_unpickler._marked_safe_globals_set = set(allowed)


def tree_classes() -> dict[str, type]:
    """Return torch's table from names in files of ``torch.export`` to container classes."""
    from torch.utils import _pytree

    return _pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE


_UNSET: Any = object()


def backend_settings() -> list[Any]:
    """Return the settings of ``torch.backends`` that are in Python, and not in torch's ``at::Context``."""
    return [contents.get(name, _UNSET) for contents, name in _python_backends()]


def replace_backend_settings(settings: list[Any]) -> None:
    """Restore a result of ``backend_settings``."""
    for (contents, name), value in zip(_python_backends(), settings, strict=True):
        if value is _UNSET:
            contents.pop(name, None)
        else:
            contents[name] = value


@functools.cache
def _python_backends() -> list[tuple[dict[str, Any], str]]:
    import torch

    backends: Any = torch.backends
    # Objects replace the modules ``backends`` and ``opt_einsum``. Assignments go to the object, functions of
    # the module to the module.
    einsum = [vars(backends.opt_einsum), vars(backends.opt_einsum.m)]
    places = [(contents, name) for contents in einsum for name in ("enabled", "strategy")]
    frozen = (vars(backends.m), "__allow_nonbracketed_mutation_flag")
    return [frozen, (vars(backends.mha), "_is_fastpath_enabled"), *places]


class ScriptState(NamedTuple):
    """TorchScript's caches of compiled Python code."""

    unit: Any
    classes: dict[type, Any]
    class_names: dict[str, type]
    functions: WeakKeyDictionary[Any, Any]
    overloads: WeakKeyDictionary[Any, Any]
    module_types: Any

    @classmethod
    def begun(cls) -> Self:
        """Return the state of a new process: empty."""
        import torch
        from torch.jit import _recursive

        store = _recursive.ConcreteTypeStore()
        return cls(torch._C.CompilationUnit(), {}, {}, WeakKeyDictionary(), WeakKeyDictionary(), store)

    def exchange(self) -> ScriptState:
        """Set this state; returns the previous one."""
        from torch.jit import _recursive, _state

        before = ScriptState(
            _state._python_cu,
            _state._script_classes,
            _state._name_to_pyclass,
            _state._jit_caching_layer,
            _state._jit_function_overload_caching,
            _recursive.concrete_type_store,
        )
        _state._python_cu = _recursive._python_cu = self.unit
        _state._script_classes, _state._name_to_pyclass = self.classes, self.class_names
        _state._jit_caching_layer, _state._jit_function_overload_caching = self.functions, self.overloads
        _recursive.concrete_type_store = self.module_types
        return before


def storage_address(storage: torch.UntypedStorage) -> int:
    """Return the address of the C++ object of a storage."""
    address: int = storage._cdata
    return address


def script_tensors(module: Any) -> list[torch.Tensor]:
    """Return the tensors of a TorchScript function, or of a TorchScript module that was just loaded.

    These are parameters, buffers, and other attributes that a method reads, also in lists and dictionaries.
    They include constants in the methods' graphs, because a frozen module has its weights there.
    """
    import torch

    if not isinstance(module, torch.jit.ScriptModule):
        graphs = [module.inlined_graph] if isinstance(module, torch.jit.ScriptFunction) else []
        return [tensor for graph in graphs for tensor in _constants(graph)]
    found: list[torch.Tensor] = [*module.parameters(), *module.buffers()]
    names: set[str] = set()
    types: set[str] = set()
    parts = [part._c for part in module.modules() if isinstance(part, torch.jit.RecursiveScriptModule)]
    for part in parts:
        if (kind := part._type().qualified_name()) in types:
            continue
        types.add(kind)
        for name in part._method_names():
            method = part._get_method(name)
            # The inlined graph includes the code of called modules and functions.
            graph = method.inlined_graph if part is parts[0] else method.graph
            names.update(node.s("name") for node in graph.findAllNodes("prim::GetAttr"))
            found += _constants(graph)
    for part in parts:
        for name in names:
            if part.hasattr(name):
                found += _tensors_in(part.getattr(name))
    return found


def _constants(graph: Any) -> Iterator[torch.Tensor]:
    for node in graph.findAllNodes("prim::Constant"):
        for name in node.attributeNames():
            kind = node.kindOf(name)
            if kind in ("t", "ts", "ival"):
                yield from _tensors_in(getattr(node, kind)(name))


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors_in(part)


_BY_NAME = {each.where.partition(":")[2].lstrip("_"): each for each in _PACKAGE_NAMES + _CORE_NAMES}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return an object of torch by its name in the table, without the leading underscore."""
        if name not in _BY_NAME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _BY_NAME[name].resolve()
