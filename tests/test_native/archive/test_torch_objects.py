"""Torch's own objects are unpickled as they were: packed weights, hooks' handles, and others."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from test_native.archive.test_unpickler import through_a_package
from torch import nn
from torch.nn.utils import prune
from torch.package import PackageExporter, PackageImporter

from interpool.native.archive import packed_weights
from interpool.native.archive.unpickler import unpickle_checked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
]


# torch.ao.quantization is imported by what needs it, as it imports torch._dynamo: that takes seconds.


def static(layer: nn.Module, *shape: int) -> nn.Module:
    from torch.ao import quantization

    model = nn.Sequential(quantization.QuantStub(), layer, quantization.DeQuantStub()).eval()
    model.qconfig = quantization.get_default_qconfig("x86")
    quantization.prepare(model, inplace=True)
    model(torch.rand(shape))
    converted: nn.Module = quantization.convert(model)
    return converted


def dynamic(layer: nn.Module, dtype: torch.dtype = torch.qint8) -> nn.Module:
    from torch.ao import quantization

    quantized: nn.Module = quantization.quantize_dynamic(nn.Sequential(layer).eval(), dtype=dtype)
    return quantized


def table() -> nn.Module:
    from torch.ao import quantization

    model = nn.Sequential(nn.EmbeddingBag(10, 4, mode="sum")).eval()
    model.qconfig = quantization.float_qparams_weight_only_qconfig
    quantization.prepare(model, inplace=True)
    converted: nn.Module = quantization.convert(model)
    return converted


def pruned() -> nn.Module:
    layer = nn.Linear(3, 2)
    prune.l1_unstructured(layer, "weight", amount=0.3)
    return layer


ROWS = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
KINDS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "linear, dynamic": (lambda: dynamic(nn.Linear(3, 4)), ROWS),
    "linear, dynamic, half": (lambda: dynamic(nn.Linear(3, 4), torch.float16), ROWS),
    "LSTM, dynamic": (lambda: dynamic(nn.LSTM(3, 4)), ROWS[None]),
    "GRU, dynamic": (lambda: dynamic(nn.GRU(3, 4)), ROWS[None]),
    "linear, static": (lambda: static(nn.Linear(3, 4), 2, 3), ROWS),
    "convolution, static": (lambda: static(nn.Conv1d(2, 2, 1), 1, 2, 3), ROWS[None]),
    "convolution in 3D, static": (
        lambda: static(nn.Conv3d(2, 2, 1), 1, 2, 3, 1, 1),
        ROWS[None, ..., None, None],
    ),
    "table, packed": (table, torch.tensor([[1, 2], [9, 0]])),
    "weight_norm": (lambda: nn.utils.weight_norm(nn.Linear(3, 2)), ROWS),
    "pruned": (pruned, ROWS),
    "traced by FX": (lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU())), ROWS),
    "not initialised": (lambda: nn.LazyLinear(2, bias=False), ROWS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_torchs_modules_answer_as_they_did(tmp_path: Path, kind: str) -> None:
    make, inputs = KINDS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make()
    found = through_a_package(tmp_path / "m.pt", model)
    if kind == "not initialised":  # its weights are random, and made now
        found.weight.materialize((2, 3))
        nn.init.ones_(found.weight)
        assert torch.equal(found(inputs), inputs.sum(1, keepdim=True).expand(2, 2))
        return
    given, wanted = found(inputs), model(inputs)
    if isinstance(wanted, tuple):
        given, wanted = given[0], wanted[0]
    assert torch.equal(given, wanted)


def test_the_code_of_an_fx_module_is_not_left_in_torch(tmp_path: Path) -> None:
    """It would be a trace of the model, which then needs interpreters of its own."""
    through_a_package(tmp_path / "m.pt", torch.fx.symbolic_trace(nn.Linear(3, 2)))
    from torch.fx import graph_module

    assert "forward" not in vars(getattr(graph_module, "_CodeOnlyModule", object))


def test_a_hook_is_removed_by_the_handle_that_came_along(tmp_path: Path) -> None:
    with PackageExporter(tmp_path / "m.pt") as exporter:
        exporter.extern("**")
        layer = nn.Linear(3, 2)
        handle = layer.register_forward_hook(nn.functional.relu)
        exporter.save_pickle("m", "value.pkl", (layer, handle))
    importer = PackageImporter(str(tmp_path / "m.pt"))
    unpickle_checked(importer, "m.pt")
    found, its_handle = importer.load_pickle("m", "value.pkl")
    assert list(found._forward_hooks.values()) == [nn.functional.relu]
    its_handle.remove()
    assert not found._forward_hooks
    later = nn.Linear(1, 1).register_forward_hook(nn.functional.relu)
    assert later.id > its_handle.id


def test_packed_weights_that_are_met_twice_are_one(tmp_path: Path) -> None:
    packed = torch.ops.quantized.linear_prepack(
        torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8), None
    )
    first, again = through_a_package(tmp_path / "m.pt", [packed, packed])
    assert first is again
    assert torch.equal(
        torch.ops.quantized.linear_dynamic(ROWS, first), torch.ops.quantized.linear_dynamic(ROWS, packed)
    )


def test_packed_weights_that_stay_empty_are_an_error_where_they_are_used(tmp_path: Path) -> None:
    """Torch's own object would end the process."""
    with PackageExporter(tmp_path / "m.pt") as exporter:
        exporter.extern("**")
        exporter.save_pickle("m", "needs.pkl", torch.float32)
        exporter.save_binary("m", "value.pkl", b"\x80\x03ctorch\nScriptObject\n)\x81.")
    importer = PackageImporter(str(tmp_path / "m.pt"))
    unpickle_checked(importer, "m.pt")
    empty: Any = importer.load_pickle("m", "value.pkl")
    assert isinstance(empty, packed_weights.PackedWeights)
    with pytest.raises(RuntimeError, match="found type 'PackedWeights'"):
        torch.ops.quantized.linear_dynamic(ROWS, empty)
