"""Tensors cross without a copy: what they are on the other side, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from interpool_testing import Code

from interpool.native import InterpreterSession
from interpool.native.errors import ConversionError

DESCRIBE = """
import torch

def describe(x):
    return (
        type(x).__name__, str(x.dtype), tuple(x.shape), x.stride(), x.storage_offset(), x.requires_grad,
        x.is_leaf, x.is_conj(), x.is_neg(), x.data_ptr(), x.untyped_storage().nbytes(),
    )

def identity(x): return x
"""


def describe(x: torch.Tensor) -> tuple[Any, ...]:
    names: dict[str, Any] = {}
    exec(DESCRIBE, names)
    described: tuple[Any, ...] = names["describe"](x)
    return described


DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_crosses_with_its_bits(session: InterpreterSession, dtype: torch.dtype) -> None:
    bits = torch.arange(2 * 3 * dtype.itemsize, dtype=torch.uint8)
    if dtype is torch.bool:
        bits = bits % 2
    tensor = bits.view(dtype).reshape(2, 3)
    code = Code(session, DESCRIBE)
    assert code.call("describe", tensor) == describe(tensor)
    back = code.call("identity", tensor)
    assert describe(back) == describe(tensor)
    assert back.contiguous().view(torch.uint8).tolist() == tensor.contiguous().view(torch.uint8).tolist()


BASE = torch.arange(24.0)
SHAPES = {
    "zero-dimensional": torch.tensor(3.5),
    "empty with sizes": torch.empty(2, 0, 3),
    "strided": BASE[1::3],
    "permuted": BASE.reshape(2, 3, 4).permute(2, 0, 1),
    "expanded": BASE[:3, None].expand(3, 5),
    "channels last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "overlapping": BASE.as_strided((4, 3), (1, 1), 2),
    "conjugate": torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negative": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "inference": torch.inference_mode()(lambda: torch.ones(3))(),
    "from numpy": torch.from_numpy(np.arange(6.0).reshape(2, 3)),
    "shared memory": torch.arange(5).share_memory_(),
}


@pytest.mark.parametrize("tensor", SHAPES.values(), ids=SHAPES.keys())
def test_a_view_crosses_as_the_view_that_it_is(session: InterpreterSession, tensor: torch.Tensor) -> None:
    code = Code(session, DESCRIBE)
    assert code.call("describe", tensor) == describe(tensor)
    back = code.call("identity", tensor)
    assert describe(back) == describe(tensor)
    assert torch.equal(back, tensor)
    assert session.global_("builtins", "repr")(code["identity"](tensor)).to_value() == repr(tensor)


def test_a_write_is_seen_on_the_other_side(session: InterpreterSession) -> None:
    here = torch.zeros(4)
    there = session.from_value(here)
    there.attr("add_")(5)
    assert here.tolist() == [5, 5, 5, 5]
    here[1] = 7
    assert there.attr("tolist")().to_value() == [5, 7, 5, 5]
    back = there.to_value()
    back[2] = 9
    assert here.tolist() == there.attr("tolist")().to_value() == [5, 7, 9, 5]


def test_a_tensor_made_inside_is_shared_with_the_host(session: InterpreterSession) -> None:
    there = session.global_("torch", "zeros")(3)
    here = there.to_value()
    here += 2
    assert there.attr("tolist")().to_value() == [2, 2, 2]
    assert there.attr("data_ptr")().to_value() == here.data_ptr()


def test_tensors_that_alias_in_one_value_alias_after_it(session: InterpreterSession) -> None:
    base = torch.zeros(6)
    code = Code(
        session,
        """
        import torch
        def write(tensors):
            tensors["view"][0] = 1
            tensors["pair"][1].add_(10)
            storages = {tensors[name].untyped_storage().data_ptr() for name in ("base", "view")}
            return len(storages) == 1, tensors["base"].tolist()
        def tied():
            weight = torch.nn.Parameter(torch.zeros(2))
            return {"encoder": weight, "decoder": [weight], "half": weight.detach()[1:]}
        """,
    )
    value = {"base": base, "view": base[3:], "pair": (base[:2], base[:2])}
    assert code.call("write", value) == (True, [10, 10, 0, 1, 0, 0])
    tied = code.call("tied")
    with torch.no_grad():
        tied["decoder"][0].fill_(4)
    assert tied["encoder"].tolist() == [4, 4]
    assert tied["half"].tolist() == [4]


def test_the_exporter_may_resize_its_tensor_without_harm(session: InterpreterSession) -> None:
    here = torch.ones(4)
    there = session.from_value(here)
    here.resize_(2**20).fill_(3)
    del here
    assert there.attr("tolist")().to_value() == [1, 1, 1, 1]


def test_the_importer_cannot_resize_memory_that_is_not_its_own(session: InterpreterSession) -> None:
    from interpool.native.errors import RemoteError

    here = torch.ones(4)
    with pytest.raises(RemoteError, match="not resizable"):
        session.from_value(here).attr("resize_")(2**20)
    assert here.tolist() == [1, 1, 1, 1]


def test_a_leaf_that_wants_a_gradient_is_one_on_the_other_side(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import torch
        def gradient(x):
            (x * x).sum().backward()
            return x.grad
        def parameter():
            return torch.nn.Parameter(torch.ones(2))
        """,
    )
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    assert code.call("gradient", leaf).tolist() == [2, 4]
    assert code.call("gradient", torch.nn.Parameter(torch.ones(2))).tolist() == [2, 2]
    assert leaf.grad is None  # the gradient is the other tensor's
    parameter = code.call("parameter")
    assert parameter.is_leaf
    assert parameter.requires_grad
    (parameter * 3).sum().backward()
    assert parameter.grad.tolist() == [3, 3]


def test_a_tensor_that_was_computed_from_a_leaf_arrives_detached(session: InterpreterSession) -> None:
    leaf = torch.ones(2, requires_grad=True)
    computed = leaf * 2
    assert session.from_value(computed).attr("requires_grad").to_value() is False
    assert session.from_value(computed).attr("is_leaf").to_value() is True
    computed.sum().backward()  # its graph here is untouched
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [2, 2]
    inside = Code(session, "import torch; y = torch.ones(2, requires_grad=True) * 2")["y"].to_value()
    assert not inside.requires_grad
    assert inside.tolist() == [2, 2]


def _kinds() -> dict[str, torch.Tensor]:
    scales, zeros = torch.tensor([0.1, 0.2], dtype=torch.float64), torch.tensor([3, -1])
    dense = torch.tensor([[0.0, 1.5, 0.0, 2.0], [3.0, 0.0, 0.0, 0.0]])
    blocks = torch.kron(torch.eye(2), torch.arange(4.0).reshape(2, 2))
    doubled = torch.sparse_coo_tensor(
        torch.tensor([[0, 0], [1, 1]]), torch.tensor([1.0, 2.0]), (2, 3), check_invariants=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "quantized per tensor": torch.quantize_per_tensor(dense, 0.5, 3, torch.qint8),
            "quantized, a view": torch.quantize_per_tensor(dense, 0.5, 3, torch.quint8)[:, 1:].t(),
            "quantized per channel": torch.quantize_per_channel(dense, scales, zeros, 0, torch.qint8),
            "quantized per channel, float zero points": torch.quantize_per_channel(
                dense, scales.float(), torch.tensor([0.5, 1.5]), 0, torch.quint8
            ),
            "COO": dense.to_sparse(),
            "COO, not coalesced": doubled,
            "COO without values": torch.zeros(2, 3).to_sparse(),
            "CSR": dense.to_sparse_csr(),
            "CSC": dense.to_sparse_csc(),
            "BSR": blocks.to_sparse_bsr((2, 2)),
            "BSC": blocks.to_sparse_bsc((2, 2)),
            "nested": torch.nested.nested_tensor([torch.ones(2, 2), torch.zeros(3, 2)]),
            "nested, a view": torch.nested.nested_tensor([torch.ones(2, 2), torch.zeros(3, 2)]).transpose(
                1, 2
            ),
            "meta": torch.empty(4, 6, dtype=torch.bfloat16, device="meta").t()[1:],
        }


KINDS = _kinds()

EXAMINE = """
import torch

def parts(x):
    if x.layout is torch.sparse_coo:
        return [x._indices(), x._values()]
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [x.crow_indices(), x.col_indices(), x.values()]
    if x.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [x.ccol_indices(), x.row_indices(), x.values()]
    return [x]

def examine(x):
    text = [repr(x), str(x.dtype), str(x.layout), str(x.device), x.dim()]
    if x.is_quantized:
        text += [str(x.qscheme()), x.int_repr().tolist(), x.dequantize().tolist()]
    elif x.is_nested:
        text += [part.tolist() for part in x.unbind()]
    elif not x.is_meta:
        text += [x.to_dense().tolist()]
    if x.is_sparse:
        text.append(x.is_coalesced())
    return text, [part.untyped_storage().data_ptr() for part in parts(x)]

def grow(x):
    parts(x)[-1].mul_(2)

def identity(x): return x
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tensor", KINDS.values(), ids=KINDS.keys())
def test_a_tensor_that_is_not_plain_crosses_with_all_its_parts_shared(
    session: InterpreterSession, tensor: torch.Tensor
) -> None:
    names: dict[str, Any] = {}
    exec(EXAMINE, names)
    code = Code(session, "import warnings; warnings.simplefilter('ignore')" + EXAMINE)
    here = names["examine"](tensor)
    assert code.call("examine", tensor) == here  # equal in all that torch says, at the same addresses
    assert names["examine"](code.call("identity", tensor)) == here


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["COO", "nested"])
def test_a_write_into_one_that_is_not_plain_is_seen_on_the_other_side(
    session: InterpreterSession, kind: str
) -> None:
    tensor = _kinds()[kind]
    code = Code(session, "import warnings; warnings.simplefilter('ignore')" + EXAMINE)

    def numbers() -> torch.Tensor:
        return torch.cat([part.to_dense().flatten() for part in tensor.unbind()])

    before = numbers()
    code["grow"](tensor)
    assert before.abs().sum() > 0
    assert torch.equal(numbers(), before * 2)


def test_a_sparse_leaf_wants_its_gradient_on_the_other_side(session: InterpreterSession) -> None:
    leaf = torch.eye(2).to_sparse().requires_grad_()
    code = Code(
        session,
        "import torch\ndef gradient(x): (x.to_dense() * 3).sum().backward(); return x.grad.to_dense()",
    )
    assert code.call("gradient", leaf).tolist() == [[3, 0], [0, 3]]


def test_parts_of_one_tensor_alias_others_of_the_same_value(session: InterpreterSession) -> None:
    sparse = torch.eye(3).to_sparse()
    code = Code(
        session,
        "def alias(x): x['values'].fill_(5); return x['sparse'].to_dense().diagonal().tolist()",
    )
    assert code.call("alias", {"sparse": sparse, "values": sparse._values()}) == [5, 5, 5]


def test_a_parameter_stays_a_parameter(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import torch
        def into_module(weight, frozen):
            layer = torch.nn.Linear(2, 1, bias=False)
            layer.weight = weight  # takes nn.Parameter only
            layer.frozen = frozen
            layer(torch.ones(1, 2)).sum().backward()
            named = dict(layer.named_parameters())
            return {name: p.requires_grad for name, p in named.items()}, named
        """,
    )
    weight = torch.nn.Parameter(torch.ones(1, 2))
    frozen = torch.nn.Parameter(torch.arange(2), requires_grad=False)
    wants, back = code.call("into_module", weight, frozen)
    assert wants == {"weight": True, "frozen": False}
    assert type(back["weight"]) is torch.nn.Parameter
    assert back["weight"].data_ptr() == weight.data_ptr()
    assert weight.grad is None


class Subclass(torch.Tensor):
    pass


# Made by the test only: the first jagged one imports torch._dynamo and sympy.
ODD: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "mkldnn": (lambda: torch.eye(3).to_mkldnn(), "opaque.*to_dense"),
    "zero": (lambda: torch._efficientzerotensor(3), "zero.*clone"),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        "NestedTensor",
    ),
    "subclass": (lambda: torch.ones(2).as_subclass(Subclass), "Subclass"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "named"), ODD.values(), ids=ODD.keys())
def test_a_tensor_of_another_kind_is_refused(
    session: InterpreterSession, make: Callable[[], torch.Tensor], named: str
) -> None:
    tensor = make()
    with pytest.raises(ConversionError, match=named):
        session.from_value({"x": [tensor]})


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("torch.eye(3).to_mkldnn()", "opaque"),
        ("torch._efficientzerotensor(3)", "zero"),
        ("torch.nn.UninitializedParameter()", "UninitializedParameter"),
        ("torch._subclasses.FakeTensorMode().from_tensor(torch.ones(2))", "FakeTensor"),
    ],
)
def test_a_tensor_of_another_kind_is_refused_on_the_way_back(
    session: InterpreterSession, expression: str, named: str
) -> None:
    source = f"import torch, warnings; warnings.simplefilter('ignore'); value = [{expression}]"
    with pytest.raises(ConversionError, match=named):
        Code(session, source)["value"].to_value()


IMPORTS = """
import builtins

import torch

imported, plain = [], builtins.__import__

def begin():
    def noted(name, *rest):
        imported.append(name)
        return plain(name, *rest)

    builtins.__import__ = noted

def end():
    builtins.__import__ = plain
    return imported

def first(x, *rest): return x
"""


def test_a_tensor_crosses_without_an_import(session: InterpreterSession) -> None:
    code = Code(session, IMPORTS)
    code.call("begin")
    answer = code.call("first", torch.ones(2), torch.nn.Parameter(torch.ones(2)))
    assert code.call("end") == []
    assert answer.tolist() == [1, 1]


def test_tensors_that_are_made_while_they_are_read_arrive_as_themselves(session: InterpreterSession) -> None:
    """Each is gone once it is read, and the next one's storage may have its address."""

    class Made(dict[str, torch.Tensor]):
        def __init__(self, value: int) -> None:
            super().__init__(t=torch.zeros(1))
            self.value = value

        def items(self) -> Any:
            return [("t", torch.full((64,), float(self.value)))]

    arrived = session.from_value([Made(value) for value in range(100)]).to_value()
    assert [each["t"][0].item() for each in arrived] == list(map(float, range(100)))
