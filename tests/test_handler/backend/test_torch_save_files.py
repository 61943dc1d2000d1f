"""Bodies that ``torch.save`` wrote: what is read of them."""

from __future__ import annotations

import io
from collections import OrderedDict
from typing import Any

import pytest
import torch
from tensor_bytes import saved
from torch import nn

from interpool.handler.backend.dense_tensors import NUMPY_TYPES
from interpool.handler.backend.torch_save_files import is_torch_save, read_torch_save
from interpool.handler.errors import InputError


def _read(value: object, **options: Any) -> Any:
    return read_torch_save("the body", saved(value, **options))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_comes_back_as_it_was(protocol: int) -> None:
    value = {
        "none": None, "truth": [True, False], "numbers": (0, -1, 255, 65536, -(2**31), 2**40, 1.5),
        "text": "ö" * 300, "bytes": [b"", b"\x00\xff" * 200], "empty": [(), [], {}], 3: {"deep": [[(1,)]]},
    }  # fmt: skip
    assert _read(value, pickle_protocol=protocol) == value


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_tensors_of_every_type_come_back_as_they_were(dtype: torch.dtype) -> None:
    tensor = torch.arange(24).reshape(2, 3, 4).to(dtype)
    for sent, protocol in zip(
        (tensor, tensor.transpose(0, 2), tensor[1:, ::2], tensor[1, 2, 3], tensor[:0]),
        (2, 3, 4, 5, 2),
        strict=True,
    ):
        read = _read(sent, pickle_protocol=protocol)
        assert read.dtype == dtype
        assert read.is_contiguous()
        assert read.untyped_storage().nbytes() == sent.numel() * dtype.itemsize
        assert torch.equal(read, sent.contiguous())


def test_parameters_become_tensors_without_gradient() -> None:
    read = _read([nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True)])
    assert [(type(each), each.requires_grad) for each in read] == [(torch.Tensor, False)] * 2


def test_an_ordered_dict_becomes_a_dict() -> None:
    read = _read(OrderedDict(a=OrderedDict(b=1)))
    assert read == {"a": {"b": 1}}
    assert type(read) is type(read["a"]) is dict


def test_one_tensor_twice_stays_one() -> None:
    tensor = torch.rand(5000)
    first, second = _read([tensor, tensor])
    assert first is second


def test_views_of_one_storage_are_tensors_of_their_own() -> None:
    whole = torch.arange(1000)
    first, second = _read([whole[:500], whole[500:]])
    first.zero_()
    assert torch.equal(second, whole[500:])


def test_a_file_without_checksums_is_read() -> None:
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        assert _read(torch.ones(2)).tolist() == [1, 1]
    finally:
        torch.serialization.set_crc32_options(before)


@pytest.mark.parametrize("zipped", [True, False])
def test_torch_save_is_known_by_its_bytes(zipped: bool) -> None:
    for protocol in (2, 3, 4):
        data = saved([1], pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
        assert is_torch_save(data)
        assert is_torch_save(bytearray(data))


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"PK", b"PK\x03\x04", b"PK\x03\x04 no zip", b"PK\x05\x06" * 30]
)
def test_other_bytes_are_not_taken_for_torch_save(data: bytes) -> None:
    assert not is_torch_save(data)


def _conjugated() -> torch.Tensor:
    return torch.ones(2, dtype=torch.complex64).conj()


REFUSED = {
    "expanded": (lambda: torch.ones(1).expand(100_000), r"send tensor\.clone\(\)"),
    "a CSR tensor": (lambda: torch.eye(3).to_sparse_csr(), r"send tensor\.to_dense\(\)"),
    "a COO tensor": (lambda: torch.eye(3).to_sparse(), r"send tensor\.to_dense\(\)"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
        r"send tensor\.dequantize\(\)",
    ),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "to_padded_tensor"),
    "meta": (lambda: torch.ones(2, device="meta"), "that has data"),
    "conjugated": (_conjugated, r"resolve_conj\(\)"),
    "negated": (lambda: _conjugated().imag, r"resolve_neg\(\)"),
    "float8": (lambda: torch.ones(2).to(torch.float8_e4m3fn), "send tensors"),
    "an array of numpy's": (lambda: torch.ones(2).numpy(), r"torch\.from_numpy"),
    "a size": (lambda: torch.Size([1]), r"send tuple\(size\)"),
    "a set": (lambda: {1}, "send a list"),
    "a state_dict": (lambda: nn.Linear(1, 1).state_dict(), r"send dict\(value\)"),
    "a module": (lambda: nn.Linear(1, 1), "send tensors"),
    "a dtype": (lambda: torch.float32, "send tensors"),
    "a storage": (lambda: torch.ones(2).untyped_storage(), "send tensors"),
    "a large number": (lambda: 1 << 5000, "send tensors"),
    "a key that is a tuple": (lambda: {(1, 2): 3}, "send one by texts"),
    "deep": (lambda: _nested(150), "send flatter data"),
    "many": (lambda: [[0] * 1000] * 1000, "send tensors for long lists"),
    "long": (lambda: list(range(300_000)), "send tensors for long lists"),
}


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_with_more_than_plain_data_is_refused_with_the_remedy(kind: str) -> None:
    make, remedy = REFUSED[kind]
    with pytest.raises(InputError, match=remedy):
        _read(make())


def test_a_file_of_the_old_format_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"before torch 1\.6"):
        _read([1], _use_new_zipfile_serialization=False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_torchscript_module_is_refused_with_the_remedy() -> None:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Linear(1, 1)), buffer)
    assert is_torch_save(buffer.getvalue())
    with pytest.raises(InputError, match="send the tensors"):
        read_torch_save("the body", buffer.getvalue())
