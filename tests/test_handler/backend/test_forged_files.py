"""Every body of tensors is refused as the client's fault, or it is what it says."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from many_examples import EXAMPLES
from tensor_bytes import npy, saved
from test_handler.backend.forged_torch_files import FILES, GOOD, file_of, pickle_of, tensor

from interpool.handler.backend.dense_tensors import NUMPY_TYPES
from interpool.handler.backend.tensor_files import read_npy, read_safetensors
from interpool.handler.backend.torch_save_files import read_torch_save
from interpool.handler.errors import InputError

READERS: dict[str, Callable[[str, bytes], Any]] = {
    "torch.save": read_torch_save,
    "safetensors": read_safetensors,
    "npy": read_npy,
}


def _tensors(value: Any) -> list[torch.Tensor]:
    """Those in a value, and nothing but plain data beside them."""
    if isinstance(value, torch.Tensor):
        return [value]
    if type(value) is dict:
        assert all(type(key) in (str, int) for key in value)
        return _tensors(list(value.values()))
    if type(value) in (list, tuple):
        return [found for each in value for found in _tensors(each)]
    assert value is None or type(value) in (bool, int, float, str, bytes)
    return []


def validate(value: Any, size: int) -> None:
    """The tensors that were read of a body of so many bytes do not differ from torch's own."""
    found = {id(each): each for each in _tensors(value)}.values()
    for each in found:
        assert type(each) is torch.Tensor
        assert each.layout == torch.strided
        assert each.device.type == "cpu"
        assert each.dtype in NUMPY_TYPES
        assert each.is_contiguous()
        assert not any([each.requires_grad, each.is_conj(), each.is_neg()])
        assert each.storage_offset() == 0
        assert each.untyped_storage().nbytes() == each.numel() * each.itemsize
        if each.dtype == torch.bool:
            assert each.numel() == 0 or int(each.view(torch.uint8).max()) <= 1
    assert sum(each.numel() * each.itemsize for each in found) <= size


def read(kind: str, data: bytes) -> bool:
    """Whether a body of that kind was read; it was refused otherwise."""
    try:
        value = READERS[kind]("the body", data)
    except InputError as error:
        refusal = str(error)
    else:
        validate(value, len(data))
        return True
    assert refusal.startswith("the body ")
    assert refusal.isprintable()
    assert len(refusal) < 400
    return False


def test_the_file_that_forged_ones_are_made_of_is_read() -> None:
    assert read("torch.save", GOOD)
    assert read_torch_save("the body", GOOD).view(torch.uint8).tolist() == list(range(16))


def _reading(data: bytes) -> tuple[bool, int]:
    """Whether a torch.save file was read, and the most memory that this took besides that of its tensors."""
    tracemalloc.start()
    try:
        return read("torch.save", data), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("forged", FILES)
def test_a_forged_torch_save_file_is_refused_in_little_memory(forged: str) -> None:
    was_read, most = _reading(FILES[forged])
    assert not was_read
    assert most < (64 << 20) + 4 * len(FILES[forged])


@pytest.mark.parametrize("last", ["a", "\N{GRINNING FACE}"])
def test_a_text_takes_at_most_seven_times_the_body(last: str) -> None:
    data = saved("a" * 5_000_000 + last, pickle_protocol=2)
    was_read, most = _reading(data)
    assert was_read
    assert most < 7 * len(data) + (1 << 20)


def test_bools_of_other_bytes_become_true() -> None:
    stored = b"(X\x07\0\0\0storagectorch\nBoolStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x10tQ"
    data = file_of(pickle_of(tensor(shape=(16,), stored=stored)), storage=bytes(range(16)))
    assert read("torch.save", data)
    assert read_torch_save("the body", data).view(torch.uint8).tolist() == [0] + [1] * 15


_X = torch.arange(12, dtype=torch.float32).reshape(3, 4)
VALID = {
    "torch.save": [
        GOOD,
        saved(
            {"x": _X.T, "flags": torch.tensor([True]), "rest": [1, None, "text", b"bytes"]}, pickle_protocol=2
        ),
        saved(
            [_X, _X[1:], torch.tensor(1, dtype=torch.bfloat16), torch.tensor([1], dtype=torch.uint16)],
            pickle_protocol=4,
        ),
    ],
    "safetensors": [safetensors.torch.save({"x": _X, "flags": torch.tensor([True])}, {"by": "a client"})],
    "npy": [npy(_X.numpy()), npy(np.asfortranarray(_X.numpy())), npy(np.array([True, False]))],
}


@st.composite
def _forged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A good file with some bytes changed, cut, or put in the place of others.

    Most changes are of bytes that say something: where the file differs from zeros.
    """
    kind = draw(st.sampled_from(list(VALID)))
    data = bytearray(draw(st.sampled_from(VALID[kind])))
    said = [at for at, byte in enumerate(data) if byte not in (0, ord("Z"))]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.sampled_from(said)) % max(len(data), 1)
        match draw(st.integers(0, 4)):
            case 0:
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                data[at : at + 1] = bytes([(data[at] if data else 0) ^ 1 << draw(st.integers(0, 7))])
            case 2:
                data[at : at + draw(st.sampled_from([1, 2, 4, 8]))] = draw(st.binary(max_size=8))
            case 3:
                other = draw(st.integers(0, len(data)))
                size = draw(st.integers(1, 64))
                data[at : at + size] = data[other : other + size]
            case _:
                del data[draw(st.sampled_from([at, len(data) - 1])) :]
    return kind, bytes(data)


@settings(max_examples=EXAMPLES, deadline=None)
@given(_forged())
def test_a_changed_file_is_refused_or_what_it_says(forged: tuple[str, bytes]) -> None:
    read(*forged)


@pytest.mark.long
@settings(max_examples=10_000, deadline=None)
@given(_forged())
def test_ten_thousand_changed_files_are_refused_or_what_they_say(forged: tuple[str, bytes]) -> None:
    read(*forged)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=4) | st.sampled_from([tensor(), b"(", b"h\x00"]), max_size=30))
def test_any_instructions_are_refused_or_make_plain_data(parts: list[bytes]) -> None:
    read("torch.save", file_of(pickle_of(b"".join(parts))))
