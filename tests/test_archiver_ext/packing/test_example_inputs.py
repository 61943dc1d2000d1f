from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.prove.example_inputs import find_inputs

if TYPE_CHECKING:
    from pathlib import Path

    from test_archiver_ext.conftest import Write

    from interpool.native.archive.format import EntryKind

FACTORY = {
    "specpkg/factory.py": """
        def build(): ...
        def example_inputs(): return {"x": 1, "y": [2]}
        def one(): return [3, 4]
        def several(): return 1, 2
        rows = [{"body": "text"}]
        def forgotten(): [1]
        def stream(): yield 1
    """
}


@pytest.mark.parametrize(
    ("given", "args", "kwargs"),
    [
        ("", (), {"x": 1, "y": [2]}),
        ("specpkg.factory:one", ([3, 4],), {}),
        ("specpkg.factory:several", (1, 2), {}),
        ("specpkg.factory:rows", ([{"body": "text"}],), {}),
    ],
)
def test_inputs_are_found_beside_the_spec_or_where_the_user_says(
    importable: Write, given: str, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    root = importable(FACTORY)
    sample = find_inputs("specpkg.factory:build", "callable", root, given)
    assert sample is not None
    assert (sample.args, sample.kwargs) == (args, kwargs)


def test_a_model_need_not_have_example_inputs(importable: Write) -> None:
    root = importable({"specpkg/factory.py": "def build(): ..."})
    assert find_inputs("specpkg.factory:build", "callable", root, "") is None


def test_a_json_file_holds_tensors_or_a_handlers_request_body(importable: Write, tmp_path: Path) -> None:
    root = importable(FACTORY)
    file = tmp_path / "in.json"
    file.write_text("[[1.0, 2.0], [3.0, 4.0]]")
    of_module = find_inputs("specpkg.factory:build", "module", root, str(file))
    assert of_module is not None
    assert of_module.describe() == {
        "args": [{"tensor": {"dtype": "float32", "shape": [2, 2]}}],
        "kwargs": {},
    }
    of_handler = find_inputs("specpkg.factory:build", "handler", root, str(file))
    assert of_handler is not None
    assert of_handler.args == ([{"body": [[1.0, 2.0], [3.0, 4.0]]}],)


def test_a_file_of_torch_save_holds_tensors(importable: Write, tmp_path: Path) -> None:
    root = importable(FACTORY)
    torch.save((torch.ones(2), torch.zeros(3)), tmp_path / "in.pt")
    sample = find_inputs("specpkg.factory:build", "module", root, str(tmp_path / "in.pt"))
    assert sample is not None
    assert [part.shape for part in sample.args] == [(2,), (3,)]


@pytest.mark.parametrize("name", ["in.json", "in.pt", "missing.pt"])
def test_a_file_that_holds_no_inputs_is_refused(importable: Write, tmp_path: Path, name: str) -> None:
    root = importable(FACTORY)
    if name != "missing.pt":
        (tmp_path / name).write_text("[1,")
    with pytest.raises(PackError, match=rf"{name}: example inputs cannot be read"):
        find_inputs("specpkg.factory:build", "module", root, str(tmp_path / name))


@pytest.mark.parametrize("kind", ["handler"])
def test_inputs_that_are_no_batch_are_refused_for_a_handler(importable: Write, kind: EntryKind) -> None:
    root = importable(FACTORY)
    with pytest.raises(PackError, match="one batch as TorchServe gives it"):
        find_inputs("specpkg.factory:build", kind, root, "specpkg.factory:several")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("specpkg.factory:forgotten", "the example inputs are None"),
        ("specpkg.factory:stream", "the example inputs are a generator"),
        ("inputs.npy", "neither a SPEC"),
    ],
)
def test_inputs_that_cannot_be_meant_are_refused(importable: Write, given: str, said: str) -> None:
    root = importable(FACTORY)
    with pytest.raises(PackError, match=said):
        find_inputs("specpkg.factory:build", "module", root, given)
