"""What ``import torch`` imports and eager inference never touches: see ``inside/lean_imports.py``.

Part of the place for torch's next release: ``tests/test_native/inside/test_lean_imports.py`` holds each row
to it. Which of these modules a release imports is found out when it does; what it lacks is passed over.
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
    # Of the standard library:
    "unittest": ("argparse", "unittest"),
    "asyncio": ("asyncio", "ssl"),
    "tarfile": ("tarfile",),
    "difflib": ("difflib",),
    "locale": ("locale",),
}
"""Packages and modules, with all that is below them. A family is imported as a whole, in torch's order."""

REGISTERING = "compiler"
"""The family that registers kernels and operators with torch's dispatcher: a dispatch may need it."""

EAGER = frozenset({"torch.fx.experimental.sym_node"})
"""Of a family's, but imported with torch: C++ asks for it when a tensor is made. It needs no other."""

LATER_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "torch": {"torch._higher_order_ops": ("cond", "while_loop"), "torch.func": ("vmap",)},
    "torch.autograd": {"torch.autograd.gradcheck": ("gradcheck", "gradgradcheck")},
    "torch.compiler": {
        "torch._higher_order_ops.invoke_subgraph": ("NestedCompileRegionOptions",),
        "torch._precompile": ("precompile", "PrecompileError"),  # the first in 2.14 only
    },
}
"""Modules that are imported with torch, and the names that they take from a family's modules. Their own
functions use none of these names, but for annotations. Releases differ in which of a row's they take."""

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
"""Functions (module, name) that ask for classes only to see whether an object is of one: it is not, as long
as the module that defines the class was not imported. Saving and loading, scripting and backward ask so.
Releases differ in which of a row's names they use."""

QUESTIONS: dict[tuple[str, str], str] = {
    ("torch._subclasses.fake_tensor", "is_fake_tensor"): "torch._C:_is_fake_tensor",  # since 2.15
}
"""Functions (module, name) of a family's modules that ask whether a tensor is of a class of theirs, or is
what C++ says by this function: that alone, as long as the module was not imported."""

OBJECTS_BEFORE: dict[str, dict[str, type]] = {
    "torch.fx.operator_schemas": {"_SCHEMA_TO_SIGNATURE_CACHE": dict},
}
"""Objects of a family's modules that others refer to from the start, and what makes them."""

CONSTANTS: dict[str, tuple[str, ...]] = {
    "torch._higher_order_ops.invoke_subgraph": ("_SUPPORTED_NESTED_REGION_INDUCTOR_CONFIG_KEYS",),
}
"""Frozen sets of strings of a family's modules that others read while torch is imported, for a docstring. A
full import tells their values."""

TREE_NODES = ("torch:Size",)
"""Types that eager code has, and that are nodes of ``torch.utils._pytree`` only by REGISTERING's modules."""

LISTS = (
    "torch._weights_only_unpickler:_get_safe_globals",
    "torch._weights_only_unpickler:_get_user_allowed_globals",
)
"""Functions that answer with what REGISTERING's modules add to; loading ordinary weights asks none."""

LOOK_UPS = ("torch._ops:_HigherOrderNamespace",)
"""Classes whose attributes are operators; what they do not have, REGISTERING's modules may define."""
