from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest
import torch
from archives import add_members
from torch.package import PackageExporter

from interpool.archiver_ext.inspect.storages import StorageRecord, TensorRecord, read_storages
from interpool.archiver_ext.mar.opening import OpenedArchive, open_archive
from interpool.native.archive.reader import read_records

if TYPE_CHECKING:
    from pathlib import Path


def storages_in(path: Path) -> tuple[list[StorageRecord], list[str]]:
    """Of a package without a manifest."""
    with path.open("rb") as file:
        records = read_records(str(path), file)
        opened = OpenedArchive(path, str(path), file, 0, records, None, None)  # type: ignore[arg-type]
        return read_storages(opened)


def storages_of(path: Path, value: object) -> list[StorageRecord]:
    """Of a pickle of ``value``, written by torch.package."""
    with PackageExporter(path) as exporter:
        exporter.extern("**")
        exporter.save_pickle("p", "value.pkl", value)
    storages, notes = storages_in(path)
    assert notes == []
    return storages


def test_an_archives_storages_name_their_tensors_largest_first(packed_shop: Path) -> None:
    with open_archive(packed_shop) as opened:
        storages, notes = read_storages(opened)
    assert notes == []
    assert [(each.bytes, each.dtype, [tensor.name for tensor in each.tensors]) for each in storages] == [
        (48, "float32", ["tied", "body.weight"]),
        (12, "float32", ["body.bias"]),
        (8, "float16", ["half.weight"]),
        (4, "float16", ["half.bias"]),
    ]
    assert storages[0].tensors[1] == TensorRecord("body.weight", [3, 4], "float32")


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensors_are_described_as_torch_describes_them(tmp_path: Path) -> None:
    marked = torch.zeros(2, 2)
    marked.note = "a tensor with an attribute is pickled in another way"  # type: ignore[attr-defined]
    tensors = {
        "view": torch.ones(10)[2:6].view(2, 2),
        "scalar": torch.tensor(3),
        "marked": marked,
        "bfloat16": torch.ones(1, dtype=torch.bfloat16),
        "unsigned": torch.ones(2, dtype=torch.uint16),
        "bool": torch.ones(3, dtype=torch.bool),
        "parameter": torch.nn.Parameter(torch.ones(4, 1)),
        "complex": torch.ones(2, dtype=torch.complex64),
        "quantized": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    }
    found = {
        tensor.name: (tensor.shape, tensor.dtype, storage.bytes)
        for storage in storages_of(tmp_path / "t.pt", tensors)
        for tensor in storage.tensors
    }
    assert found == {
        name: (
            list(tensor.shape),
            str(tensor.dtype).removeprefix("torch."),
            tensor.untyped_storage().nbytes(),
        )
        for name, tensor in tensors.items()
    }


def test_the_parts_of_sparse_tensors_and_bare_storages_are_seen(tmp_path: Path) -> None:
    value = [torch.eye(3).to_sparse(), torch.ones(5).untyped_storage()]
    sparse, bare = storages_of(tmp_path / "t.pt", value)[0], storages_of(tmp_path / "u.pt", value)[1]
    assert (sparse.dtype, sparse.bytes) == ("int64", 48)
    assert (bare.dtype, bare.bytes, bare.tensors) == ("bytes", 20, [])


class Slotted:
    """An object whose state is no dict."""

    __slots__ = ("state",)

    def __init__(self, state: object) -> None:
        self.state = state

    def __getstate__(self) -> object:
        return self.state

    def __setstate__(self, state: object) -> None:
        self.state = state


@pytest.mark.parametrize("state", [[1, torch.ones(5)], (torch.ones(5), {"a": 1}), torch.ones(5)])
def test_the_tensors_of_a_state_that_is_no_dict_are_seen(tmp_path: Path, state: object) -> None:
    (storage,) = storages_of(tmp_path / "t.pt", {"config": Slotted(state)})
    assert (storage.dtype, storage.tensors) == ("float32", [TensorRecord("config", [5], "float32")])


def test_a_pickle_that_cannot_be_read_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "bad.pt"
    with PackageExporter(path) as exporter:
        exporter.save_binary("p", "bad.pkl", b"\x80\x04nonsense")
    storages, (note,) = storages_in(path)
    assert storages == []
    assert note.startswith("p/bad.pkl cannot be read as a pickle")


def test_tensors_that_no_one_reads_cost_no_memory(tmp_path: Path) -> None:
    tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
        b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQK\x00K\x04\x85K\x01\x85\x89NtRq\x01"
    )
    path = tmp_path / "many.pt"
    with PackageExporter(path) as exporter:
        exporter.save_binary("p", "many.pkl", b"\x80\x02]q\x00(" + tensor + b"h\x01" * 300_000 + b"e.")
    add_members(path, {".data/0.storage": bytes(16)})
    tracemalloc.start()
    try:
        (storage,), notes = storages_in(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(storage.tensors) == 100_000
    assert notes == ["p/many.pkl names more than the 100,000 tensors that are shown"]
    assert most < 60 << 20
