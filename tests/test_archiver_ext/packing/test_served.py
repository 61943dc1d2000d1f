"""A model that was packed is answered over HTTP as it answers when it is called, or packing says why not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from click.testing import CliRunner, Result
from test_archiver_ext.building import build, refused_build

from interpool.archiver_ext import PackError, PackReport, pack, verify_archive
from interpool.archiver_ext.mar.opening import open_archive
from interpool.archiver_ext.packing.plan import Plan, read_plan, write_plan
from interpool.archiver_ext.packing.serving_choices import Choices
from interpool.handler.cli import main

if TYPE_CHECKING:
    from test_archiver_ext.conftest import Write

    from interpool.native.archive.format import Manifest

pytestmark = pytest.mark.long

MODELS = """
    import torch
    from torch import nn

    class Picture(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 3)

        def forward(self, x):
            return self.conv(x).mean((2, 3))

    class Bags(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.EmbeddingBag(10, 4)

        def forward(self, indices, offsets):
            return self.table(indices, offsets)

    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Dropout(0.0))

        def forward(self, x):
            return self.layers(x)

    class Asks(nn.Module):
        def forward(self, x):
            return x + 1 if self.training else x

    class Holds:
        def __init__(self):
            self.net = Asks()

        def __call__(self, x):
            return self.net(x)

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            (step,) = torch.autograd.grad((self.weight * x).sum(), self.weight)
            return x + step

    class Doubles(nn.Module):
        def forward(self, x):
            x.mul_(2)
            return x + 1

    class Cache:
        pass

    class Remembers(nn.Module):
        def forward(self, x):
            return {"logits": x, "past": [Cache()]}
"""
FACTORY = """
    import torch
    from mypkg import models

    def picture():
        torch.manual_seed(0)
        return models.Picture().eval()

    def bags():
        torch.manual_seed(0)
        return models.Bags().eval()

    def dropped():
        torch.manual_seed(0)
        return models.Dropped()

    def asks():
        return models.Asks()

    def steps():
        return models.Steps().eval()

    def remembers():
        return models.Remembers().eval()

    def double():
        return models.torch.neg

    def doubles():
        return models.Doubles()

    def holds():
        return models.Holds()

    def image():
        torch.manual_seed(1)
        return torch.rand(1, 3, 16, 24)

    def numbers():
        return torch.tensor([[1.0, 2.0, 3.0]])

    def pair():
        return torch.tensor([[1.0, 2.0]])

    def indices():
        return torch.tensor([1, 2, 4]), torch.tensor([0, 2])
"""


PROJECT = {"mypkg/__init__.py": "", "mypkg/models.py": MODELS, "mypkg/factory.py": FACTORY}


@pytest.fixture
def root(project: Write) -> Path:
    return project(PROJECT)


def inputs(name: str) -> dict[str, Any]:
    """To have a build run on one of the example inputs."""
    return {"inputs": f"mypkg.factory:{name}"}


def packed(root: Path, name: str, inputs: str, **options: Any) -> PackReport:
    """An archive of one of the models."""
    output = root.parent / f"{name}.ptpkg"
    return pack(f"mypkg.factory:{name}", output, root=root, inputs=f"mypkg.factory:{inputs}", **options)


def manifest_of(report: PackReport) -> Manifest:
    with open_archive(report.output) as opened:
        return opened.manifest


def interpool(*arguments: object) -> Result:
    """Run a command that must not fail."""
    done = CliRunner().invoke(main, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done


def entry_of(report: PackReport) -> Any:
    importer = torch.package.PackageImporter(str(report.output))
    return importer.load_pickle("interpool-archive", "entry.pkl")


def test_an_example_with_a_batch_dimension_becomes_a_request_without(root: Path, tmp_path: Path) -> None:
    report = packed(root, "picture", "image")
    manifest = manifest_of(report)
    assert manifest["serving"] == {
        "batches": "stack",
        "parts": "rows",
        "grad": False,
        "train_mode": False,
    }
    body = interpool("inspect", report.output, "--request").stdout_bytes
    assert torch.tensor(json.loads(body)).shape == (3, 16, 24)
    said = interpool("inspect", report.output).output
    line = f"interpool inspect {report.output} --request | curl -sS -X POST http://"
    assert line in said
    assert "/predictions/picture -H 'Content-Type: application/json' --data-binary @-" in said
    for command in ("inspect", "verify"):
        (curl,) = [
            row.strip() for row in interpool(command, report.output).stdout.splitlines() if line in row
        ]
        assert json.loads(interpool(command, report.output, "--json").stdout)["curl"] == curl
    made = interpool("archive", report.output, "--model-name", "p", "--export-path", tmp_path).output
    assert f"interpool inspect {tmp_path / 'p.mar'} --request | curl" in made
    assert "/predictions/p " in made
    assert interpool("inspect", tmp_path / "p.mar", "--request").stdout_bytes == body


def test_an_answer_that_cannot_be_sent_is_packed_without_the_serve_check(root: Path) -> None:
    report = packed(root, "remembers", "pair", serve_check=False)
    assert (report.request, manifest_of(report)["request"]) == (None, None)
    assert interpool("verify", report.output).output.endswith(f"verified {report.output}\n")


def test_a_module_in_training_mode_is_packed_in_evaluation_mode_and_said(root: Path) -> None:
    report = packed(root, "dropped", "numbers")
    (said,) = (each for each in report.warnings if "training mode" in each)
    assert "layers.1 (BatchNorm1d), layers.2 (Dropout) would answer otherwise" in said
    entry = entry_of(report)
    assert not any(layer.training for layer in entry.modules())
    expected = torch.tensor(json.loads(json.dumps(entry(torch.tensor([[1.0, 2.0, 3.0]])).tolist())))
    held = torch.package.PackageImporter(str(report.output)).load_pickle("interpool-archive", "self-test.pkl")
    assert torch.allclose(held["expected"], expected)


def test_training_mode_can_be_kept_on_purpose(root: Path) -> None:
    report = packed(root, "asks", "pair", serving=Choices(train_mode=True))
    assert not any("training mode" in each for each in report.warnings)
    assert entry_of(report).training
    assert manifest_of(report)["serving"]["train_mode"]
    held = torch.package.PackageImporter(str(report.output)).load_pickle("interpool-archive", "self-test.pkl")
    assert held["expected"].tolist() == [[2.0, 3.0]]
    assert verify_archive(report.output).stages[-1].checked.endswith("and to its request, too")


def test_pack_names_the_option_for_a_model_that_differentiates(importable: Write, tmp_path: Path) -> None:
    error = refused_build("mypkg.factory:steps", importable(PROJECT), tmp_path, **inputs("pair"))
    assert re.search(r"(?s)mypkg/models\.py:\d+: .*autograd\.grad.*inference mode.*--grad", error.message)


def test_a_model_that_differentiates_is_served_with_gradients(root: Path) -> None:
    report = packed(root, "steps", "pair", serving=Choices(grad=True))
    assert manifest_of(report)["serving"]["grad"]
    assert report.request is not None
    verify_archive(report.output)


def test_a_plan_yields_to_an_option_and_what_stands_beside_the_spec_to_the_plan(
    importable: Write, tmp_path: Path
) -> None:
    root = importable({**PROJECT, "mypkg/factory.py": FACTORY + '\n    serving = {"batches": "batch"}\n'})
    assert build("mypkg.factory:picture", root, tmp_path).serving["batches"] == "batch"
    write_plan(Plan("mypkg.factory:picture", serving=Choices(batches="each")), tmp_path / "plan.toml")
    plan = read_plan(tmp_path / "plan.toml")
    assert packed(root, "picture", "image", plan=plan).serving["batches"] == "each"
    assert Choices("stack").or_else(Choices("each", grad=True)) == Choices("stack", grad=True)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"batch": "each"}, "it says 'batch', which means nothing; it can say batches, grad, train_mode"),
        ({"batches": "all"}, "batches is 'all', and can be one of stack, batch, each"),
        ({"grad": "yes"}, "grad is 'yes', and can be true or false"),
    ],
)
def test_serving_choices_that_contradict_are_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(PackError, match=words):
        Choices.of(said, "plan.toml: [serving]")


def test_the_self_test_of_a_model_that_changes_its_inputs_has_the_given_ones(
    importable: Write, tmp_path: Path
) -> None:
    build("mypkg.factory:doubles", importable(PROJECT), tmp_path, **inputs("pair"))
    importer = torch.package.PackageImporter(str(tmp_path / "archive.ptpkg"))
    (found,) = importer.load_pickle("interpool-archive", "self-test.pkl")["args"]
    assert found.tolist() == [[1.0, 2.0]]


def test_several_positional_arguments_are_a_request(root: Path) -> None:
    output = root.parent / "bags.ptpkg"
    spec, inputs = "mypkg.factory:bags", "mypkg.factory:indices"
    said = interpool("pack", spec, "-o", output, "--root", root, "--inputs", inputs).output
    assert """-d '{"args": [[1, 2, 4], [0, 2]]}'""" in said
    report = verify_archive(output)
    assert "and to its request, too" in report.stages[-1].checked


def test_layers_whose_answers_depend_on_the_mode_are_named(importable: Write, tmp_path: Path) -> None:
    root = importable(PROJECT)
    for name, named in (("asks", "the model itself (Asks)"), ("holds", "net.the model itself (Asks)")):
        (said,) = (each for each in build(f"mypkg.factory:{name}", root, tmp_path).warnings if "mode" in each)
        assert named in said


def test_a_callable_has_no_modes_to_choose(importable: Write, tmp_path: Path) -> None:
    serving = Choices(grad=True)
    error = refused_build("mypkg.factory:double", importable(PROJECT), tmp_path, serving=serving)
    assert "grad is for a torch" in error.message
