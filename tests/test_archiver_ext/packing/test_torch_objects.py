"""What torch makes of a model is packed as pickle takes it, or refused with what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from test_archiver_ext.building import refused_build

from interpool.archiver_ext import PackError, pack

if TYPE_CHECKING:
    from pathlib import Path

    from test_archiver_ext.conftest import Write

pytestmark = pytest.mark.long

PROJECT = {
    "mypkg/__init__.py": "",
    "mypkg/m.py": """
        import torch
        from torch import nn
        from torch.ao import quantization
        from torch.nn.utils import prune

        example_inputs = torch.ones(2, 3)

        def pruned():
            layer = nn.Linear(3, 2)
            prune.l1_unstructured(layer, "weight", amount=0.3)
            return layer

        def static():
            layers = quantization.QuantStub(), nn.Linear(3, 2), quantization.DeQuantStub()
            model = nn.Sequential(*layers).eval()
            model.qconfig = quantization.get_default_qconfig("x86")
            quantization.prepare(model, inplace=True)
            model(example_inputs)
            return quantization.convert(model)

        def two_graphs():  # as torchvision's feature extractors
            model = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
            model.train_graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2))).graph
            model.eval_graph = model.graph
            return model

        class Hooked(nn.Linear):
            def __init__(self):
                super().__init__(3, 2)
                self.handle = self.register_forward_pre_hook(self.doubled)

            def doubled(self, module, args):
                return (args[0] * 2,)

        class All(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = nn.ModuleList([
                    quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 2)).eval(), dtype=torch.qint8),
                    static(),
                    pruned(),
                    nn.utils.weight_norm(nn.Linear(3, 2)),
                    Hooked(),
                    torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2))),
                    two_graphs(),
                    torch.jit.script(nn.Linear(3, 2)),
                    torch.jit.freeze(torch.jit.script(nn.Linear(3, 2).eval())),
                    torch.compile(nn.Linear(3, 2), backend="eager"),
                ])

            def forward(self, x):
                return torch.stack([part(x).sum(1) for part in self.parts], 1)

        def build():
            torch.manual_seed(0)
            return All()

        class Holds:
            def __init__(self):
                layer = nn.Sequential(nn.Linear(3, 2))
                self.net = torch.export.export(layer, (example_inputs,)).module()

            def __call__(self, x):
                return self.net(x)

        def group():
            store = torch.distributed.HashStore()
            torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)

        class Parallel:
            def __init__(self):
                group()
                self.net = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))

            def __call__(self, x):
                return self.net(x)

        class Grouped(nn.Module):
            def __init__(self):
                super().__init__()
                group()

            def forward(self, x):
                assert torch.distributed.is_initialized(), "no group"
                return x
    """,
}


def test_modules_that_torch_has_transformed_are_packed_and_answer_the_same(
    project: Write, tmp_path: Path
) -> None:
    """Compiled modules as they were before; packing itself compares the answers, in a process of its own."""
    report = pack("mypkg.m:build", tmp_path / "m.ptpkg", root=project(PROJECT))
    assert report.request is not None
    said = "mypkg.m:build contains a module compiled by torch.compile, which cannot be packed"
    assert [warning for warning in report.warnings if warning.startswith(said)]


def test_an_object_of_torch_export_is_refused_with_what_to_do(importable: Write, tmp_path: Path) -> None:
    error = refused_build("mypkg.m:Holds", importable(PROJECT), tmp_path)
    refusal, advice = error.message.splitlines()[:2]
    assert refusal == "the object that mypkg.m:Holds gives cannot be pickled at net (GraphModule)"
    assert advice.startswith("  What to do: torch.export made it: give pack the module that was exported. ")


def test_an_object_that_needs_a_process_group_is_refused_with_what_to_do(
    project: Write, tmp_path: Path
) -> None:
    with pytest.raises(PackError) as caught:
        pack("mypkg.m:Parallel", tmp_path / "m.ptpkg", root=project(PROJECT))
    refusal, advice = caught.value.message.splitlines()[:2]
    assert refusal == (
        "the object that mypkg.m:Parallel gives cannot be pickled at net (DistributedDataParallel)"
    )
    assert advice.startswith("  What to do: give pack the model without what needs a process gr")


def test_a_process_group_that_was_made_when_the_model_was_built_is_named(
    project: Write, tmp_path: Path
) -> None:
    with pytest.raises(PackError) as caught:
        pack("mypkg.m:Grouped", tmp_path / "m.ptpkg", root=project(PROJECT))
    line, said, made, advice, _row = caught.value.message.splitlines()
    assert line.endswith('assert torch.distributed.is_initialized(), "no group"')
    assert said.endswith("does not answer in a fresh process: AssertionError: no group")
    assert made == "  mypkg.m:Grouped makes a process group (torch.distributed), which no archive holds"
    assert advice.startswith("  What to do: give pack the model without what needs a process group")
