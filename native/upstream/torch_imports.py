"""Modules that ``import torch`` imports and eager inference does not use: see ``inside/lean_imports.py``.

Update these tables for torch's next release: ``tests/test_native/inside/test_lean_imports.py`` checks each
row. Modules that a release does not import are ignored.
"""

from __future__ import annotations

FAMILIES: dict[str, tuple[str, ...]] = {
    "compiler": (
        "torch._custom_op",
        "torch._custom_ops",
        "torch._decomp",
        "torch._dispatch",
        "torch._export",
        "torch._functorch._aot_autograd",
        "torch._functorch.batch_norm_replacement",
        "torch._functorch.eager_transforms",
        "torch._functorch.einops",
        "torch._functorch.functional_call",
        "torch._higher_order_ops",
        "torch._meta_registrations",
        "torch._native",
        "torch._precompile",
        "torch._prims",
        "torch._refs",
        "torch._subclasses",
        "torch.compiler.precompile",
        "torch.export",
        "torch.func",
        "torch.fx",
        "torch.hub",
        "torch.nested",
        "torch.testing._internal",
        "torch.utils._debug_mode",
        "torch.utils.checkpoint",
        "torchgen",
    ),
    "quantization": (
        "torch.ao",
        "torch.nn.intrinsic",
        "torch.nn.qat",
        "torch.nn.quantizable",
        "torch.nn.quantized",
        "torch.quantization",
    ),
    "distributions": ("torch.distributions",),
    "data": ("torch.utils.data",),
    "masked": ("torch.masked",),
    "profiler": ("torch.profiler", "torch.optim"),
    "gradcheck": ("torch.autograd.gradcheck",),
    # standard library:
    "unittest": ("argparse", "unittest"),
    "asyncio": ("asyncio", "ssl"),
    "tarfile": ("tarfile",),
    "difflib": ("difflib",),
    "locale": ("locale",),
}
"""Packages and modules, with all submodules. A family is imported as a whole, in torch's order."""

OF_OTHERS = ("cuda.bindings.driver", "cuda.bindings.runtime")
"""Modules of other packages: see ``inside/later_modules.py``. Torch's modules use their attributes, in CUDA
graphs and green contexts alone, and compare them with None."""

REGISTERING = "compiler"
"""The family that registers kernels and operators with torch's dispatcher: a dispatch may need it."""

EAGER = frozenset({"torch.fx.experimental.sym_node"})
"""Modules of families that are imported with torch: C++ needs them to create a tensor."""

LATER_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "torch": {"torch._higher_order_ops": ("cond", "while_loop"), "torch.func": ("vmap",)},
    "torch.autograd": {"torch.autograd.gradcheck": ("gradcheck", "gradgradcheck")},
    "torch.compiler": {
        "torch._higher_order_ops.invoke_subgraph": ("NestedCompileRegionOptions",),
        "torch._precompile": ("precompile", "PrecompileError"),  # the first in 2.14 only
    },
}
"""Modules that are imported with torch, and the names that they import from a family's modules. Their
functions use these names only in annotations. Releases import different names of a row."""

CLASS_CHECKS: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    ("torch._guards", "detect_fake_mode"): {
        "torch._subclasses.fake_tensor": (
            "FakeTensor",
            "FakeTensorMode",
            "get_plain_tensors",
            "is_fake_tensor",
            "maybe_get_fake_mode",
        ),
    },
    ("torch._tensor", "_reduce_ex_internal"): {
        "torch._subclasses.fake_tensor": ("FakeTensor", "is_fake_tensor"),
    },
    ("torch._tensor", "__reduce_ex__"): {"torch._subclasses.fake_tensor": ("FakeTensor",)},
    ("torch.autograd", "_make_grads"): {"torch.nested._internal.nested_tensor": ("NestedTensor",)},
    ("torch.jit._recursive", "infer_concrete_type_builder"): {"torch.ao.quantization": ("QuantWrapper",)},
}
"""Functions (module, name) that use classes only in type checks. A check is false as long as the module that
defines the class was not imported. Saving and loading, scripting and backward run such checks. Releases use
different names of a row."""

QUESTIONS: dict[tuple[str, str], str] = {
    ("torch._subclasses.fake_tensor", "is_fake_tensor"): "torch._C:_is_fake_tensor",  # since 2.15
}
"""Functions (module, name) of a family's modules that check for a class of theirs, or else call this C++
function. As long as the module was not imported, the C++ function alone decides."""

OBJECTS_BEFORE: dict[str, dict[str, type]] = {
    "torch.fx.operator_schemas": {"_SCHEMA_TO_SIGNATURE_CACHE": dict},
}
"""Objects of a family's modules to which other modules refer from the start, and their factories."""

CONSTANTS: dict[str, tuple[str, ...]] = {
    "torch._higher_order_ops.invoke_subgraph": ("_SUPPORTED_NESTED_REGION_INDUCTOR_CONFIG_KEYS",),
}
"""Frozen sets of strings of a family's modules that others read during the import of torch, for a docstring.
The note of a full import has their values."""

TREE_NODES = ("torch:Size",)
"""Types of eager code that REGISTERING's modules register as nodes of ``torch.utils._pytree``."""

LISTS = (
    "torch._weights_only_unpickler:_get_safe_globals",
    "torch._weights_only_unpickler:_get_user_allowed_globals",
)
"""Functions whose results REGISTERING's modules extend; loading ordinary weights calls none of them."""

LOOK_UPS = ("torch._ops:_HigherOrderNamespace",)
"""Classes whose attributes are operators; REGISTERING's modules may define missing ones."""
